"""A network as data: layers, weights and shapes, without the program that made them.

network        the graph, and its bytes
shapes         whether a graph and its weights fit together
windows        which inputs a pooling layer looks at
capture        from a torch module to a graph, by the rules of capture_rules
rebuild        from a graph to a torch module
unit_flow      which layers make the units that others read
compaction     dead units out, exactly, and back
live_forward   training through the non-zero weights alone
"""

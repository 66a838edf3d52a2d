"""A network as data: layers, weights and shapes, without the program that made them.

network        the graph, and its bytes
encoding       numbers and names as bytes
operations     what a layer may be: one class each, with all that any stage knows of it
stages         what the stages hand to an operation
shapes         whether a graph and its weights fit together
work           how much a graph may compute
simplify       graphs without what does nothing
constants      weights that are computed from weights
streaming      recurrent networks for sequences that come in parts
capture        from a torch module to a graph
onnx           from an ONNX file to a graph
rebuild        from a graph to a torch module
unit_flow      which layers make the units that others read
compaction     dead units out, exactly, and back
live_forward   training through the non-zero weights alone
live           its layers, and from a graph to calls of them
"""

"""The machinery of one optimizer step, which a reader of the paper need not look for.

q_space            theta → q before a step and back after it
compiled           the same in small and in pruned layers, compiled
parts              a step of some weights alone
blocks             large layers block by block, within the cache
bundles            many little layers as one
shrinking          the proximal step of all layers together
kept               what was sorted for a step, until a layer changes
zeroing            zeros where a mask is false
inner_optimizer    the wrapped optimizer and its state
optimizer_wrapper  an optimizer around another one
state_dict         saving and loading
interrupts         Ctrl-C waits while omega and theta change together
"""

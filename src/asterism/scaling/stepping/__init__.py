"""The machinery of one optimizer step, which a reader of the paper need not look for.

q_space            theta → q before a step and back after it
pruned_layers      the same in pruned layers, compiled
small_layers       the same in small layers of which nothing is pruned, compiled
blocks             the same with the inner step, for large layers block by block
shrinking          the proximal step of all layers together
zeroing            zeros where a mask is false
inner_optimizer    the wrapped optimizer and its state
optimizer_wrapper  an optimizer around another one
state_dict         saving and loading
interrupts         Ctrl-C waits while omega and theta change together
"""

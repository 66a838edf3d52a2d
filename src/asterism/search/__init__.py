"""sparsify(): the sparsest network within a tolerance.

sparsify      the one call
options       its settings, from Python, TOML or the command line
supervised    loaders, a loss and a metric as a task
strategy      which trial comes next, and when to stop
trial         one trial: re-weight or cut, train, measure
state         what was found so far
pareto        the front of the best networks
limits        the tolerance and the budget
layer_floors  densities below which single layers do not fall
folder        the search on disk
plan          the dry run
bit_widths    the fewest bits within a tolerance
"""

"""sparsify(): the sparsest network within a tolerance.

sparsify      the one call
options       its options, for Python, TOML, the command line and config.json
task          what to train and how to measure it
strategy      which trial comes next, and when to stop
trial         one trial: re-weight or cut, train, measure
state         what was found so far, and where the search stands
pareto        what was measured, and the front of the best networks
limits        the tolerance and the budget
layer_floors  densities below which single layers do not fall
folder        the search on disk
plan          the dry run
bit_widths    the fewest bits within a tolerance
ranks/        several processes as one search
progress/     what a person sees of it meanwhile
"""

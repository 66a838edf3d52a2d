"""Which weights stay: scores, exact counts, masks.

request          the arguments of `prune`, checked
masks            from a request (density, threshold, N:M or masks) to one mask per layer
scores           magnitude and LAMP: what weights are compared by
selection        a given number of the highest scores over all layers, exactly
compiled         the passes of a cut over all weights, compiled
selection_bins   the bins that `selection` counts, and the bounds by which it decides
group_selection  the same where whole groups stay or go
n_to_m           N of every M neighbours
"""

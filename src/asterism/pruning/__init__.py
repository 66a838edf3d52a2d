"""Which weights stay: scores, exact counts, masks.

request          the arguments of `prune`, checked
masks            from a request (density, threshold, N:M or masks) to one mask per layer
scores           what a weight is worth
selection        exactly so many of the highest scores over all layers
selection_bins   the bounds by which `selection` decides
group_selection  the same where whole groups stay or go
n_to_m           N of every M neighbours
"""

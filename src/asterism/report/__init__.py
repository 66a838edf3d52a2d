"""A run as one HTML page. Reads result files, and never trains.

page       the page
account    what a run was and what came of it
layers     the network layer by layer
drawings   the trade-off, the course of training, histograms
pictures   masks and filters
labels     names beside points
svg        matplotlib's figures inside the page
published  what others have published
"""

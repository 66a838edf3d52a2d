"""The pictures of a page, as text: SVG, and PNG for single weights.

trade_off  weights against error or metric
course     what happened over the epochs
histogram  how a layer's weights are spread
diagram    the network: its layers, their width and density
pictures   masks and filters
window     the part of the axis that is worth seeing
labels     names beside points
svg        matplotlib's figures inside the page
"""

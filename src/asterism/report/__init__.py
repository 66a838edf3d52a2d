"""A run as one HTML page. Reads result files, and never trains.

page       the page
headline   what came of a run, in one line
layers     the network layer by layer
tables     the page's tables as files to download
published  what others have published
reading    what a run was and what came of it
drawing    the pictures
"""

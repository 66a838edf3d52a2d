"""What a person sees of a search while it runs.

words    a trial and its outcome in plain words
status   where the search is at this moment: trial, epoch, best, time
display  a bar for a terminal or a notebook, lines elsewhere
"""

"""What a run was and what came of it, read from its folder.

account        one shape for every kind of run
folder         which kind of run a folder holds
reproductions  the rows of a table, and a single row
searches       a search
"""

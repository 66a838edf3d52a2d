"""One file for each command: reproduce, sparsify, plan, compress, evaluate, export, inspect, bench,
report.
"""

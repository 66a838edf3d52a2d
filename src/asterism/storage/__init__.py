"""What a run keeps on disk, and the guarantee that a kill or a full disk loses nothing.

atomic_files  files that are written whole or not at all
config        settings as plain JSON, and where two of them differ
packing       the weights of many networks, sparse ones by their live entries
provenance    the date, the versions and the commit of a run
random_state  the state of every random generator
run_folder    ownership of run folders: the config, the lock, the result
snapshots     tensors and numbers between two steps of a run
"""

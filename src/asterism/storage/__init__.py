"""What a run keeps on disk, and the guarantee that a kill or a full disk loses nothing.

atomic_files  files that are written whole or not at all
config        settings as plain JSON, and where two of them differ
random_state  the state of every random generator
run_folder    one folder, one run: the claim on it, and the lock
snapshots     tensors and numbers between two steps of a run
"""

"""Several processes as one search: who decides, who trains on what, what is the same on all.

launch    whether torchrun has started this process
crew      the processes, what the first tells the others, and the end of all when one fails
loaders   each rank's part of the batches that one process would have
lockstep  an epoch that all ranks take step by step
replicas  one model on several ranks: copies by DDP, shards by FSDP2
"""

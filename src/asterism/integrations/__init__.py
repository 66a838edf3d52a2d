"""AffineScaling inside other people's trainers, each an optional extra.

lightning     a callback
transformers  a Trainer
accelerate    prepare()
tensorboard   scalars and histograms
"""

"""AffineScaling inside other people's trainers, each an optional extra."""

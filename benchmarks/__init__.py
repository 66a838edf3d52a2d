"""Speed and memory, as ratios of two things measured alternately in one run."""

"""Sparse neural networks by re-weighted learning."""

"""The `fast` codec: at the speed of numpy, for large networks.

codec       tensors ↔ bytes
elias_fano  positions
planes      integers in as few bits as the largest needs
"""

"""Tensors, storages, the autograd tape, and the API generated from the op registry."""

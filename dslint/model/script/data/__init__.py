"""Loaders, samplers, parts of the data by rank, labels, and the order of random numbers."""

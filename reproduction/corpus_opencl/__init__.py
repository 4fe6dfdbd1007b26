"""Kernels of published packages: how many get in, as they are and with their packages' own options."""

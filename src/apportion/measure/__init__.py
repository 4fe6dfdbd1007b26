"""Measuring: campaigns over kernels and devices, spaces of configurations, counters."""

"""Relative performance across systems."""

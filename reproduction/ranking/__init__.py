"""Compiler configurations of tensor programs."""

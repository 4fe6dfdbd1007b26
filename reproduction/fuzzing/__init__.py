"""Inputs that nobody wrote: mutated IR, and one construct repeated without end."""

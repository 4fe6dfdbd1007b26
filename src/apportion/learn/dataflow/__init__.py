"""Learned data-flow analyses: which nodes of a program graph an analysis marks."""

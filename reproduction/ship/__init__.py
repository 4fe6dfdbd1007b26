"""The making of shipped weights."""

"""The share of a kernel's work that each device should take."""

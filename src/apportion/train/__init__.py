"""Experiments: one TOML file makes one run directory."""

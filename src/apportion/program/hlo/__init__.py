"""XLA's HLO: modules, their text, and JAX functions lowered to it."""

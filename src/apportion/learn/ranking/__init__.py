"""Which configuration of a tensor program is fastest."""

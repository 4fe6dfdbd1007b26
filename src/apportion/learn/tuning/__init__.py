"""Which configuration of a program to measure next."""

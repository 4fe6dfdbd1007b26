"""Scheduling policies: parity with Gavel, what wrong predictions cost, jobs drawn from measured runs."""

"""Conformance checks to inherit in tests: one class for each kind of thing that outsiders may add.

Each stands in a module of its own, so that checking a runner loads no device: `runner_checks.RunnerChecks`.
"""

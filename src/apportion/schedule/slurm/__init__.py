"""Slurm: a table of placements that `job_submit.lua` reads, and a daemon that keeps it fresh."""

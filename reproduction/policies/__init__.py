"""Policies judged on launches that were measured: what they lose over the best cut, launch after launch."""

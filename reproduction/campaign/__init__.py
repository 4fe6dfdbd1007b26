"""The measuring campaign on a Xeon with an H200."""

"""The shipped models on kernels never seen."""

"""The OpenCL backend: a worker process that owns the drivers, and what it does with each device."""

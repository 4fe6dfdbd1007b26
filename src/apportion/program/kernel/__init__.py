"""OpenCL kernels: signatures, memory accesses, operation counts, launches."""

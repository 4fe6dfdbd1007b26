"""Programs of many kernels in a session, beside one device, the best assignment found, and StarPU."""

// Counts of bytes, with atomics on global memory. BINS is given from outside.
#ifndef BINS
#define BINS 256
#endif
__kernel void histogram(__global const uchar *in, __global int *counts, const int n) {
  for (int i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&counts[in[i] % BINS]);
}

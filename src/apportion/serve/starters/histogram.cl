// Counts bytes with atomic additions: work-items write where the data says.
__kernel void histogram(__global const uchar* values, __global uint* counts, const int n)
{
    int i = get_global_id(0);
    if (i < n)
        atomic_inc(&counts[values[i]]);
}

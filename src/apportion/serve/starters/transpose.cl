// Reads rows, writes columns: neighbours write far from each other.
__kernel void transpose(__global const float* in, __global float* out, const int n)
{
    int x = get_global_id(0);
    int y = get_global_id(1);
    out[x * n + y] = in[y * n + x];
}

// One step of heat flow on a grid: five neighbours for each point.
__kernel void stencil(__global const float* in, __global float* out, const int width)
{
    int x = get_global_id(0);
    int y = get_global_id(1);
    int height = get_global_size(1);
    int at = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[at] = in[at];
        return;
    }
    out[at] = 0.2f * (in[at] + in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
}

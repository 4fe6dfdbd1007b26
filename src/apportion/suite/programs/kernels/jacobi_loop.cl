// One step of Jacobi's method for Laplace's equation: every inner point becomes the mean of its neighbours.
kernel void jacobi_step(global const float *old, global float *next, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int here = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) next[here] = old[here];
    else next[here] = 0.25f * (old[here - 1] + old[here + 1] + old[here - width] + old[here + width]);
}

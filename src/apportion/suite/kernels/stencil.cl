// Stencils in one, two and three dimensions.
kernel void convolution(global const float *signal, global float *result, constant float *taps, int count, int reach) {
    int i = get_global_id(0);
    float sum = 0.0f;
    for (int k = -reach; k <= reach; k++) sum += taps[k + reach] * signal[clamp(i + k, 0, count - 1)];
    result[i] = sum;
}

kernel void jacobi(global const float *from, global float *to, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1), i = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) to[i] = from[i];
    else to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - width] + from[i + width]);
}

kernel void heat(global const float *from, global float *to, int n) {
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), i = (z * n + y) * n + x;
    float here = from[i];
    float sum = (x > 0 ? from[i - 1] : here) + (x < n - 1 ? from[i + 1] : here) + (y > 0 ? from[i - n] : here)
              + (y < n - 1 ? from[i + n] : here) + (z > 0 ? from[i - n * n] : here) + (z < n - 1 ? from[i + n * n] : here);
    to[i] = here + 0.1f * (sum - 6.0f * here);
}

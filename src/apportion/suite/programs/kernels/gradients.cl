// Conjugate gradients for a five-point stencil with a heavy diagonal; what is divided stays on the device.
kernel void cg_begin(global const float *right, global float *x, global float *r, global float *p) {
    int i = get_global_id(0);
    x[i] = 0;
    r[i] = right[i];
    p[i] = right[i];
}
kernel void cg_multiply(global const float *p, global float *q, int width) {
    int x = get_global_id(0), y = get_global_id(1), height = get_global_size(1), here = y * width + x;
    float sum = 4.5f * p[here];
    if (x > 0) sum -= p[here - 1];
    if (x < width - 1) sum -= p[here + 1];
    if (y > 0) sum -= p[here - width];
    if (y < height - 1) sum -= p[here + width];
    q[here] = sum;
}
kernel void cg_dot(global const float *a, global const float *b, global float *sums, int count, local float *kept) {
    int here = get_local_id(0);
    float sum = 0;
    for (int i = get_global_id(0); i < count; i += get_global_size(0)) sum += a[i] * b[i];
    kept[here] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = get_local_size(0) / 2; step; step /= 2) {
        if (here < step) kept[here] += kept[here + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (here == 0) sums[get_group_id(0)] = kept[0];
}
kernel void cg_total(global const float *sums, global float *total, int count) {
    if (get_global_id(0) == 0) {
        float sum = 0;
        for (int i = 0; i < count; i++) sum += sums[i];
        total[0] = sum;
    }
}
kernel void cg_advance(global float *x, global float *r, global const float *p, global const float *q,
                       global const float *rr, global const float *pq) {
    int i = get_global_id(0);
    float alpha = rr[0] / pq[0];
    x[i] += alpha * p[i];
    r[i] -= alpha * q[i];
}
kernel void cg_turn(global float *p, global const float *r, global const float *rr, global const float *before) {
    int i = get_global_id(0);
    p[i] = r[i] + rr[0] / before[0] * p[i];
}

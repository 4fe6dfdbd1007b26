// Power iteration on a sparse matrix with so many entries in each row: multiply, measure, scale.
kernel void power_multiply(global const int *column, global const float *value, global const float *x, global float *y,
                           int entries) {
    int i = get_global_id(0);
    float sum = 0;
    for (int k = 0; k < entries; k++) sum += value[i * entries + k] * x[column[i * entries + k]];
    y[i] = sum;
}
kernel void power_squares(global const float *y, global float *sums, int count, local float *kept) {
    int here = get_local_id(0);
    float sum = 0;
    for (int i = get_global_id(0); i < count; i += get_global_size(0)) sum += y[i] * y[i];
    kept[here] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = get_local_size(0) / 2; step; step /= 2) {
        if (here < step) kept[here] += kept[here + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (here == 0) sums[get_group_id(0)] = kept[0];
}
kernel void power_scale(global const float *y, global const float *sums, global float *x, int groups) {
    float sum = 0;
    for (int k = 0; k < groups; k++) sum += sums[k];
    x[get_global_id(0)] = y[get_global_id(0)] * rsqrt(sum);
}

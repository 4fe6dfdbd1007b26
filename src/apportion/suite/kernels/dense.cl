// Dense arithmetic: vectors, matrices, FP64.
kernel void triad(global const float *a, global const float *b, global float *c, float s) {
    int i = get_global_id(0);
    c[i] = a[i] + s * b[i];
}

kernel void matmul(global const float *a, global const float *b, global float *c, int n) {
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

#define TILE 8
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul_tiled(global const float *a, global const float *b, global float *c, int n) {
    local float left[TILE][TILE], right[TILE][TILE];
    int i = get_local_id(0), j = get_local_id(1), x = get_global_id(0), y = get_global_id(1);
    float sum = 0.0f;
    for (int t = 0; t < n; t += TILE) {
        left[j][i] = a[y * n + t + i];
        right[j][i] = b[(t + j) * n + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++) sum += left[j][k] * right[k][i];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[y * n + x] = sum;
}

kernel void strided_copy(global const float *from, global float *to, int stride, int count) {
    int i = get_global_id(0);
    to[i] = from[(int)(((long)i * stride) % count)];
}

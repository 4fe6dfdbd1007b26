// C = A B for square matrices: each work-item reads a row and a column.
__kernel void matmul(__global const float* a, __global const float* b, __global float* c, const int n)
{
    int row = get_global_id(1);
    int column = get_global_id(0);
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

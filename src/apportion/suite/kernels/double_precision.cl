#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void matvec_fp64(global const double *matrix, global const double *vector, global double *result, int columns) {
    int row = get_global_id(0);
    double sum = 0.0;
    for (int k = 0; k < columns; k++) sum += matrix[row * columns + k] * vector[k];
    result[row] = sum;
}

// Memory that data leads to.
kernel void sparse_matvec(global const int *starts, global const int *columns, global const float *values,
                          global const float *vector, global float *result) {
    int row = get_global_id(0);
    float sum = 0.0f;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * vector[columns[k]];
    result[row] = sum;
}

kernel void permute(global const int *places, global const float *from, global float *to) {
    int i = get_global_id(0);
    to[places[i]] = from[i];
}

kernel void frontier(global const int *starts, global const int *targets, global int *levels, int level, int count) {
    int node = get_global_id(0);
    if (node >= count || levels[node] != level) return;
    for (int k = starts[node]; k < starts[node + 1]; k++)
        if (levels[targets[k]] < 0) levels[targets[k]] = level + 1;
}

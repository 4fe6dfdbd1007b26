// A Bezier surface over 4 x 4 control points, evaluated on a grid; one work-item per point.
float bernstein(int k, float t) {
    float s = 1.0f - t;
    return k == 0 ? s * s * s : k == 1 ? 3.0f * t * s * s : k == 2 ? 3.0f * t * t * s : t * t * t;
}

kernel void bezier(global const float4 *control, global float4 *surface, int width, int height, local float4 *kept) {
    int lane = get_local_id(1) * get_local_size(0) + get_local_id(0);
    for (int k = lane; k < 16; k += get_local_size(0) * get_local_size(1)) kept[k] = control[k];
    barrier(CLK_LOCAL_MEM_FENCE);
    int x = get_global_id(0), y = get_global_id(1);
    if (x < width && y < height) {
        float u = (float)y / (float)(height - 1), v = (float)x / (float)(width - 1);
        float4 point = (float4)(0.0f);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) point += bernstein(i, u) * bernstein(j, v) * kept[4 * i + j];
        surface[y * width + x] = point;
    }
}

// A dense layer in tiles of 16 by 16, with its bias and a rectifier or none; then the softmax of each row.
kernel void network_layer(global const float *in, global const float *weight, global const float *bias,
                          global float *out, int inner, int outer, int rectify, local float *a, local float *b) {
    int x = get_global_id(0), y = get_global_id(1), i = get_local_id(0), j = get_local_id(1);
    float sum = bias[x];
    for (int start = 0; start < inner; start += 16) {
        a[j * 16 + i] = in[y * inner + start + i];
        b[j * 16 + i] = weight[(start + j) * outer + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++) sum += a[j * 16 + k] * b[k * 16 + i];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[y * outer + x] = rectify && sum < 0 ? 0 : sum;
}
kernel void network_softmax(global const float *in, global float *out, int width) {
    int y = get_global_id(0);
    float most = in[y * width], sum = 0;
    for (int k = 1; k < width; k++) most = fmax(most, in[y * width + k]);
    for (int k = 0; k < width; k++) sum += exp(in[y * width + k] - most);
    for (int k = 0; k < width; k++) out[y * width + k] = exp(in[y * width + k] - most) / sum;
}

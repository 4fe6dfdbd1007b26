// One pass of Stockham's fast Fourier transform: pairs half the length apart are combined and sorted. Each is scaled,
// so that values keep their size from transform to transform.
kernel void transform_pass(global const float2 *in, global float2 *out, int middle, int stride) {
    int i = get_global_id(0), p = i / stride, q = i % stride;
    float angle = -3.14159265358979f * p / middle;
    float2 a = M_SQRT1_2_F * in[q + stride * p], b = M_SQRT1_2_F * in[q + stride * (p + middle)], sum = a + b, far = a - b;
    float c = cos(angle), s = sin(angle);
    out[q + stride * 2 * p] = sum;
    out[q + stride * (2 * p + 1)] = (float2)(far.x * c - far.y * s, far.x * s + far.y * c);
}

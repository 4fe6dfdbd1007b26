// Five filters over a photograph: brightness, a blur in two passes, sharpening against it, and a curve of tones.
kernel void photo_grey(global const float *red, global const float *green, global const float *blue,
                       global float *grey) {
    int i = get_global_id(0);
    grey[i] = 0.299f * red[i] + 0.587f * green[i] + 0.114f * blue[i];
}
kernel void photo_blur_rows(global const float *in, global float *out, int width) {
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = -4; k <= 4; k++) sum += (5 - abs(k)) * in[y * width + clamp(x + k, 0, width - 1)];
    out[y * width + x] = sum / 25;
}
kernel void photo_blur_columns(global const float *in, global float *out, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = -4; k <= 4; k++) sum += (5 - abs(k)) * in[clamp(y + k, 0, height - 1) * width + x];
    out[y * width + x] = sum / 25;
}
kernel void photo_sharpen(global const float *grey, global const float *smooth, global float *out, float amount) {
    int i = get_global_id(0);
    out[i] = clamp(grey[i] + amount * (grey[i] - smooth[i]), 0.0f, 1.0f);
}
kernel void photo_tones(global const float *in, global float *out) {
    int i = get_global_id(0);
    float t = in[i];
    out[i] = t * t * (3 - 2 * t);
}

// Canny edge detection in four kernels over one image, in whole numbers so that results are exact everywhere.
int at(global const int *image, int x, int y, int width, int height) {
    return image[clamp(y, 0, height - 1) * width + clamp(x, 0, width - 1)];
}

kernel void canny_smooth(global const int *image, global int *smooth, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int sum = 0;
    for (int j = -1; j <= 1; j++)
        for (int i = -1; i <= 1; i++)
            sum += (2 - abs(i)) * (2 - abs(j)) * at(image, x + i, y + j, width, height);
    smooth[y * width + x] = sum / 16;
}

kernel void canny_gradient(global const int *smooth, global int *strength, global int *direction, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int h = 0, v = 0;
    for (int k = -1; k <= 1; k++) {
        int weight = 2 - abs(k);
        h += weight * (at(smooth, x + 1, y + k, width, height) - at(smooth, x - 1, y + k, width, height));
        v += weight * (at(smooth, x + k, y + 1, width, height) - at(smooth, x + k, y - 1, width, height));
    }
    int ah = abs(h), av = abs(v);
    strength[y * width + x] = ah + av;
    // 0: across, 1: along a diagonal that falls, 2: down, 3: along one that rises; tan(22.5 degrees) is 2/5 or so.
    direction[y * width + x] = 5 * av < 2 * ah ? 0 : 5 * ah < 2 * av ? 2 : (h < 0) == (v < 0) ? 1 : 3;
}

kernel void canny_thin(global const int *strength, global const int *direction, global int *thin, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int d = direction[y * width + x], here = strength[y * width + x];
    int i = d == 2 ? 0 : 1, j = d == 0 ? 0 : d == 3 ? -1 : 1;
    int one = at(strength, x + i, y + j, width, height), other = at(strength, x - i, y - j, width, height);
    thin[y * width + x] = here >= one && here >= other ? here : 0;
}

kernel void canny_edges(global const int *thin, global int *edges, int width, int height, int low, int high) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height) return;
    int strong = 0;
    for (int j = -1; j <= 1; j++)
        for (int i = -1; i <= 1; i++) strong |= at(thin, x + i, y + j, width, height) >= high;
    int here = thin[y * width + x];
    edges[y * width + x] = here >= high || (here >= low && strong) ? 255 : 0;
}

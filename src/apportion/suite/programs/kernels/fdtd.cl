// Maxwell's equations in two dimensions by finite differences in time: the magnetic field, then the electric one.
kernel void fdtd_magnetic(global float *hx, global float *hy, global const float *ez, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1), here = y * width + x;
    if (y < height - 1) hx[here] -= 0.5f * (ez[here + width] - ez[here]);
    if (x < width - 1) hy[here] += 0.5f * (ez[here + 1] - ez[here]);
}
kernel void fdtd_electric(global const float *hx, global const float *hy, global float *ez, int width, int height,
                          float source) {
    int x = get_global_id(0), y = get_global_id(1), here = y * width + x;
    if (x > 0 && y > 0) ez[here] += 0.5f * (hy[here] - hy[here - 1] - hx[here] + hx[here - width]);
    if (x == width / 2 && y == height / 2) ez[here] += source;
}

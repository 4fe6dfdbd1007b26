// A lattice-Boltzmann step on a periodic grid with nine velocities: pull what neighbours sent, then relax.
constant int lbm_x[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
constant int lbm_y[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
constant float lbm_weight[9] = {4.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 36, 1.0f / 36, 1.0f / 36,
                                1.0f / 36};
kernel void lbm_step(global const float *old, global float *next, int width, int height) {
    int x = get_global_id(0), y = get_global_id(1), cells = width * height;
    float f[9], density = 0, u = 0, v = 0;
    for (int k = 0; k < 9; k++) {
        int i = (x - lbm_x[k] + width) % width, j = (y - lbm_y[k] + height) % height;
        f[k] = old[k * cells + j * width + i];
        density += f[k];
        u += f[k] * lbm_x[k];
        v += f[k] * lbm_y[k];
    }
    u /= density;
    v /= density;
    float square = 1.5f * (u * u + v * v);
    for (int k = 0; k < 9; k++) {
        float along = 3 * (lbm_x[k] * u + lbm_y[k] * v);
        float equal = lbm_weight[k] * density * (1 + along + 0.5f * along * along - square);
        next[k * cells + y * width + x] = f[k] + 0.8f * (equal - f[k]);
    }
}

// Lloyd's algorithm: each point to its nearest centre, then each centre to the mean of its points.
kernel void cluster_nearest(global const float *points, global const float *centres, global int *label, int count,
                            int centre_count) {
    int i = get_global_id(0);
    if (i >= count) return;
    float x = points[2 * i], y = points[2 * i + 1], least = INFINITY;
    int best = 0;
    for (int k = 0; k < centre_count; k++) {
        float dx = x - centres[2 * k], dy = y - centres[2 * k + 1], far = dx * dx + dy * dy;
        if (far < least) { least = far; best = k; }
    }
    label[i] = best;
}
kernel void cluster_sums(global const float *points, global const int *label, global float *sums, int count,
                         int pieces) {
    int k = get_global_id(0), piece = get_global_id(1), length = (count + pieces - 1) / pieces;
    float x = 0, y = 0, members = 0;
    for (int i = piece * length; i < min(count, (piece + 1) * length); i++)
        if (label[i] == k) { x += points[2 * i]; y += points[2 * i + 1]; members += 1; }
    int place = 3 * (piece * get_global_size(0) + k);
    sums[place] = x;
    sums[place + 1] = y;
    sums[place + 2] = members;
}
kernel void cluster_means(global const float *sums, global float *centres, int pieces) {
    int k = get_global_id(0);
    float x = 0, y = 0, members = 0;
    for (int piece = 0; piece < pieces; piece++) {
        int place = 3 * (piece * get_global_size(0) + k);
        x += sums[place];
        y += sums[place + 1];
        members += sums[place + 2];
    }
    if (members > 0) { centres[2 * k] = x / members; centres[2 * k + 1] = y / members; }
}

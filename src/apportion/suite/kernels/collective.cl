// What work-groups do together: local memory, barriers, atomics.
kernel void block_sums(global const float *data, global float *sums, local float *kept) {
    int lane = get_local_id(0);
    kept[lane] = data[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_size = get_local_size(0) / 2; half_size > 0; half_size /= 2) {
        if (lane < half_size) kept[lane] += kept[lane + half_size];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0) sums[get_group_id(0)] = kept[0];
}

kernel void block_scan(global const int *data, global int *scanned, local int *kept) {
    int lane = get_local_id(0), i = get_global_id(0);
    kept[lane] = data[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 1; step < (int)get_local_size(0); step *= 2) {
        int before = lane >= step ? kept[lane - step] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        kept[lane] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    scanned[i] = kept[lane];
}

kernel void extremes(global const int *data, global int *least, global int *most) {
    int i = get_global_id(0);
    atomic_min(least, data[i]);
    atomic_max(most, data[i]);
}

kernel void circle_hits(global uint *hits, uint seed, int tries) {
    uint state = seed ^ (uint)get_global_id(0) * 2654435761u, inside = 0;
    for (int k = 0; k < tries; k++) {
        state = state * 1664525u + 1013904223u;
        uint x = state >> 17;
        state = state * 1664525u + 1013904223u;
        uint y = state >> 17;
        inside += x * x + y * y < 1u << 30;
    }
    atomic_add(hits, inside);
}

kernel void append_odd(global const int *data, global int *odd, global volatile int *count) {
    int value = data[get_global_id(0)];
    if (value & 1) odd[atomic_inc(count)] = value;
}

// Two histograms. By input: every group counts a share of the data in local memory, then adds to the result.
// By output: every group owns a range of bins and reads all of the data.
kernel void histogram_input(global const uint *data, global uint *histogram, int count, int bins, local uint *counts) {
    for (int b = get_local_id(0); b < bins; b += get_local_size(0)) counts[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < count; i += get_global_size(0)) atomic_inc(&counts[data[i] % bins]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int b = get_local_id(0); b < bins; b += get_local_size(0)) atomic_add(&histogram[b], counts[b]);
}

kernel void histogram_output(global const uint *data, global uint *histogram, int count, int bins, local uint *counts) {
    int each = (bins + get_num_groups(0) - 1) / get_num_groups(0);
    int first = get_group_id(0) * each;
    for (int b = get_local_id(0); b < each; b += get_local_size(0)) counts[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
        int b = (int)(data[i] % bins) - first;
        if (b >= 0 && b < each) atomic_inc(&counts[b]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int b = get_local_id(0); b < each; b += get_local_size(0))
        if (first + b < bins) histogram[first + b] = counts[b];
}

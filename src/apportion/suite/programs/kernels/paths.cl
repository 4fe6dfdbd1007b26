// Floyd and Warshall: paths between all pairs that may go through one more vertex.
kernel void paths_through(global int *length, int count, int via) {
    int x = get_global_id(0), y = get_global_id(1);
    int around = length[y * count + via] + length[via * count + x];
    if (around < length[y * count + x]) length[y * count + x] = around;
}

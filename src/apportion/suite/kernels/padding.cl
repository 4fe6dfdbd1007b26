// Padding the rows of a matrix in place: groups move pieces towards the end, the last piece first, and a group
// may only write when all groups that come before it have read what it overwrites. A chain of flags says so, and
// a ticket gives pieces out in the order in which groups begin, so that no group waits for one that has not.
kernel void padding(global float *matrix, global volatile int *flags, global volatile int *ticket, int rows,
                    int columns, int pad, local float *piece) {
    local int taken;
    int lane = get_local_id(0), lanes = get_local_size(0);
    if (lane == 0) taken = atomic_inc(ticket);
    barrier(CLK_LOCAL_MEM_FENCE);
    int task = taken;
    int from = rows * columns - 1 - task * lanes - lane;
    if (from >= 0) piece[lane] = matrix[from];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) {
        while (task > 0 && atomic_add(&flags[task - 1], 0) == 0) {}
        atomic_xchg(&flags[task], 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (from >= 0) matrix[from + from / columns * pad] = piece[lane];
}

// Stream compaction that keeps the order: each group counts what it keeps, learns from the group before it how
// many were kept so far, and passes the sum on. Tickets give pieces out in the order in which groups begin.
kernel void compaction(global const int *data, global int *kept, global volatile int *sums, global volatile int *ticket,
                       int count, int removed, local int *ranks) {
    local int taken, before;
    int lane = get_local_id(0), lanes = get_local_size(0);
    if (lane == 0) taken = atomic_inc(ticket);
    barrier(CLK_LOCAL_MEM_FENCE);
    int task = taken, i = task * lanes + lane;
    int value = i < count ? data[i] : removed;
    ranks[lane] = value != removed;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0) {
        int sum = 0;
        for (int k = 0; k < lanes; k++) {
            int one = ranks[k];
            ranks[k] = sum;
            sum += one;
        }
        int previous = 1;
        while (task > 0 && (previous = atomic_add(&sums[task - 1], 0)) == 0) {}
        atomic_xchg(&sums[task], previous + sum);
        before = previous - 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (value != removed) kept[before + ranks[lane]] = value;
}

/* One step of Jacobi's method on a grid: each inner point becomes the mean of its four neighbours,
   and each work-group reports the largest change it made. */
kernel void jacobi(global const float *restrict grid, global float *restrict next,
                   global float *restrict change, local float *largest,
                   const int width, const int height)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    const int item = get_local_id(1) * get_local_size(0) + get_local_id(0);
    const int items = get_local_size(0) * get_local_size(1);

    float difference = 0.0f;
    if (x > 0 && x < width - 1 && y > 0 && y < height - 1) {
        const int at = y * width + x;
        const float mean = 0.25f * (grid[at - 1] + grid[at + 1] + grid[at - width] + grid[at + width]);
        difference = fabs(mean - grid[at]);
        next[at] = mean;
    }

    largest[item] = difference;
    for (int step = items / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            largest[item] = fmax(largest[item], largest[item + step]);
    }
    if (item == 0)
        change[get_group_id(1) * get_num_groups(0) + get_group_id(0)] = largest[0];
}

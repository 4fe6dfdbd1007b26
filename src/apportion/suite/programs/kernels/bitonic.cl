// One pass of a bitonic sort: pairs so far apart are put in order, upwards or downwards block by block.
kernel void bitonic_pass(global int *values, int apart, int block) {
    int i = get_global_id(0), first = (i / apart) * 2 * apart + i % apart, second = first + apart;
    int a = values[first], b = values[second], up = (first / block) % 2 == 0;
    if ((a > b) == up) { values[first] = b; values[second] = a; }
}

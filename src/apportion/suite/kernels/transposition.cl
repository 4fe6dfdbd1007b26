// Transposing a matrix in place: the place of each element leads to another, in cycles. A work-item moves the
// cycle that begins with it, if no place of the cycle has a smaller number.
kernel void transposition(global float *matrix, int rows, int columns) {
    uint start = get_global_id(0), last = rows * columns - 1;
    if (start == 0 || start >= last) return;
    uint place = start;
    do {
        place = (uint)(((ulong)place * columns) % last);
    } while (place > start);
    if (place < start) return;
    float carried = matrix[start];
    do {
        // Element `place` of the transposed matrix comes from place * columns, counted round the end.
        uint source = (uint)(((ulong)place * columns) % last);
        float value = source == start ? carried : matrix[source];
        matrix[place] = value;
        place = source;
    } while (place != start);
}

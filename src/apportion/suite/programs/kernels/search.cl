// Breadth-first search, level by level, over a graph with so many edges at each vertex.
kernel void search_begin(global int *level, global int *changed) {
    int i = get_global_id(0);
    level[i] = i == 0 ? 0 : -1;
    if (i == 0) changed[0] = 0;
}
kernel void search_level(global const int *target, global int *level, global int *changed, int edges, int now) {
    int i = get_global_id(0);
    if (level[i] >= 0) return;
    for (int k = 0; k < edges; k++)
        if (level[target[i * edges + k]] == now) { level[i] = now + 1; changed[0] = now + 1; return; }
}

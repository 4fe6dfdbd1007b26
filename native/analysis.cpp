// What the analyses share: adjacency, the list of instructions, and the choice of one by name.
#include "analysis.h"

#include <numeric>

namespace apportion {

Adjacency adjacency_of(const GraphView& graph, Flow flow, Direction direction) {
    const int32_t* from = direction == Direction::forward ? graph.source : graph.target;
    const int32_t* to = direction == Direction::forward ? graph.target : graph.source;
    Adjacency out;
    out.first.assign(size_t(graph.nodes) + 1, 0);
    for (int64_t e = 0; e < graph.edges; ++e)
        if (graph.edge_flow[e] == flow) ++out.first[size_t(from[e]) + 1];
    std::partial_sum(out.first.begin(), out.first.end(), out.first.begin());
    out.node.resize(size_t(out.first.back()));
    out.edge.resize(out.node.size());
    std::vector<int64_t> next(out.first.begin(), out.first.end() - 1);
    for (int64_t e = 0; e < graph.edges; ++e)
        if (graph.edge_flow[e] == flow) {
            const size_t place = size_t(next[size_t(from[e])]++);
            out.node[place] = to[e];
            out.edge[place] = e;
        }
    return out;
}

Adjacency joined(const Adjacency& a, const Adjacency& b) {
    Adjacency out;
    const size_t nodes = a.first.size() - 1;
    out.first.assign(nodes + 1, 0);
    out.node.reserve(a.node.size() + b.node.size());
    out.edge.reserve(a.node.size() + b.node.size());
    for (size_t v = 0; v < nodes; ++v) {
        for (const Adjacency* part : {&a, &b})
            for (int64_t i = part->first[v]; i < part->first[v + 1]; ++i) {
                out.node.push_back(part->node[size_t(i)]);
                out.edge.push_back(part->edge[size_t(i)]);
            }
        out.first[v + 1] = int64_t(out.node.size());
    }
    return out;
}

std::vector<int32_t> instructions_of(const GraphView& graph) {
    std::vector<int32_t> found;
    for (int32_t v = 1; v < graph.nodes; ++v)
        if (graph.node_type[v] == INSTRUCTION) found.push_back(v);
    return found;
}

std::unique_ptr<Analysis> analysis_of(const GraphView& graph, Kind kind, Mode mode) {
    switch (kind) {
        case Kind::dominance: return dominance_analysis(graph, mode);
        case Kind::liveness: return liveness_analysis(graph, mode);
        case Kind::subexpressions: return subexpression_analysis(graph, mode);
        default: return walk_analysis(graph, kind, mode);
    }
}

}  // namespace apportion

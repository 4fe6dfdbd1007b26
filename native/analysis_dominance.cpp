// Dominance: which instructions can only be reached through the root.
#include "analysis.h"

#include <algorithm>
#include <array>
#include <set>

namespace apportion {
namespace {

// The reference's fixed point, which it abandons after more than 1,000 updates.
//
// Its sets start as S \ {root} (S: all nodes of the function, of any type), each counted update replaces one of them.
// A set that was never updated needs no storage, and an updated one holds only the root and nodes that were updated:
// it is {m} joined with an intersection in which some set was updated before, or is the root's, or is empty. So sets
// are bits over the at most 1,001 updated nodes, however large the function. A node is looked at again only after a
// predecessor's set changed, in the order in which the reference's repeated passes would find the change.
class ReferenceDominance final : public Analysis {
public:
    explicit ReferenceDominance(const GraphView& graph)
        : graph_(graph),
          next_(adjacency_of(graph, CONTROL, Direction::forward)),
          previous_(adjacency_of(graph, CONTROL, Direction::backward)) {
        eligible = instructions_of(graph);
        int32_t functions = 0;
        for (int32_t v = 0; v < graph.nodes; ++v) functions = std::max(functions, graph.node_function[v] + 1);
        members_.resize(size_t(functions));
        sources_.resize(size_t(functions));
        for (int32_t v = 1; v < graph.nodes; ++v) {
            const size_t f = size_t(graph.node_function[v]);
            members_[f].push_back(v);
            if (previous_.degree(v) == 0) ++sources_[f];
        }
        set_of_.assign(size_t(graph.nodes), UNTOUCHED);
    }

    std::string failure() const override { return "Dominance fixed-point not found in 1000 steps"; }

    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        for (size_t i = 0; i < count; ++i) {
            const int32_t root = roots[i];
            rows.failed[i] = !fixed_point(root, rows.steps[i]);
            if (!rows.failed[i])
                for (const int32_t v : members_[size_t(graph_.node_function[root])])
                    if (set_of_[size_t(v)] != UNTOUCHED && has(sets_[size_t(set_of_[size_t(v)])], 0)) {
                        set_bit(rows.row(i), v);
                        ++rows.active[i];
                    }
            for (const int32_t v : touched_) set_of_[size_t(v)] = UNTOUCHED;
        }
    }

private:
    static constexpr int32_t LIMIT = 1000;
    static constexpr int32_t UNTOUCHED = -1;
    using Set = std::array<uint64_t, (LIMIT + 1 + 63) / 64>;  // bit k: the k-th touched node; bit 0: the root

    static bool has(const Set& set, size_t bit) { return set[bit / 64] >> (bit % 64) & 1; }
    static void add(Set& set, size_t bit) { set[bit / 64] |= uint64_t(1) << (bit % 64); }
    static size_t size(const Set& set) {
        size_t total = 0;
        for (uint64_t word : set) {
            for (; word != 0; word &= word - 1) ++total;
        }
        return total;
    }

    bool fixed_point(int32_t root, int64_t& steps) {
        const int32_t function = graph_.node_function[root];
        const std::vector<int32_t>& members = members_[size_t(function)];
        steps = 0;
        touched_.assign(1, root);
        sets_.assign(1, Set{});
        add(sets_[0], 0);
        set_of_[size_t(root)] = 0;
        // Every node without predecessors is updated once, to {m}, unless that is what it started with.
        const int32_t certain = sources_[size_t(function)] - (previous_.degree(root) == 0 ? 1 : 0);
        if (certain > LIMIT && members.size() > 2) return false;
        std::set<int32_t> now, later;
        for (size_t k = 0; k < members.size() || !now.empty() || !later.empty();) {
            const bool first_pass = k < members.size();  // it looks at every node, asked for or not
            int32_t m;
            if (first_pass) {
                m = members[k++];
            } else {
                if (now.empty()) now.swap(later);
                m = *now.begin();
                now.erase(now.begin());
            }
            if (m == root || !update(m, function, members.size())) continue;
            if (++steps > LIMIT) return false;
            for (const int32_t* v = next_.begin(m); v != next_.end(m); ++v)
                if (*v != 0 && graph_.node_function[*v] == function && !(first_pass && *v > m))
                    (*v > m ? now : later).insert(*v);
        }
        return true;
    }

    // Recompute Dom(m); whether it changed.
    bool update(int32_t m, int32_t function, size_t members) {
        Set set{};
        if (previous_.degree(m) > 0) {
            bool all_untouched = true, some_untouched = false;
            for (const int32_t* p = previous_.begin(m); p != previous_.end(m); ++p) {
                const int32_t number = set_of_[size_t(*p)];
                if (*p == 0 || graph_.node_function[*p] != function) {  // outside the function: an empty set
                    all_untouched = some_untouched = false;
                    set = Set{};
                    break;
                }
                if (number == UNTOUCHED) {
                    some_untouched = true;
                } else if (all_untouched) {
                    set = sets_[size_t(number)];
                    all_untouched = false;
                } else {
                    for (size_t w = 0; w < set.size(); ++w) set[w] &= sets_[size_t(number)][w];
                }
            }
            if (all_untouched) {
                // S \ {root} again. An updated node cannot come back to it: its predecessors would have had to.
                return false;
            }
            if (some_untouched) set[0] &= ~uint64_t(1);  // S \ {root} lacks only the root
        }
        int32_t& number = set_of_[size_t(m)];
        if (number == UNTOUCHED) {
            // With itself, has it become S \ {root} all the same?
            if (touched_.size() >= members - 2 && size(set) == members - 2 && !has(set, 0)) return false;
            if (touched_.size() > size_t(LIMIT)) {  // the update that is one too many needs no set
                number = 0;
                touched_.push_back(m);
                return true;
            }
            number = int32_t(sets_.size());
            touched_.push_back(m);
            add(set, size_t(number));
            sets_.push_back(set);
            return true;
        }
        add(set, size_t(number));
        if (set == sets_[size_t(number)]) return false;
        sets_[size_t(number)] = set;
        return true;
    }

    GraphView graph_;
    Adjacency next_, previous_;
    std::vector<std::vector<int32_t>> members_;  // by function: its nodes but node 0, ascending
    std::vector<int32_t> sources_;               // by function: how many of them have no predecessor
    std::vector<int32_t> set_of_;                // by node: its set among sets_
    std::vector<Set> sets_;
    std::vector<int32_t> touched_;
};

// The dominator tree of all functions at once, by the algorithm of Lengauer and Tarjan (1979, the simple version), under
// a root of our own that leads to every entry.
class DominatorTree {
public:
    DominatorTree(const Adjacency& next, const Adjacency& previous, const std::vector<int32_t>& entries)
        : nodes_(int32_t(next.first.size()) - 1), previous_(previous) {
        number_.assign(size_t(nodes_), NONE);
        walk(next, entries);
        find_dominators();
        number_subtrees();
    }

    // The nodes that v dominates are order()[first(v)] ... order()[first(v) + size(v) - 1], v first.
    const std::vector<int32_t>& order() const { return order_; }
    int32_t first(int32_t v) const { return first_[size_t(v)]; }
    int32_t size(int32_t v) const { return size_[size_t(v)]; }
    bool dominates(int32_t v, int32_t w) const { return first(w) >= first(v) && first(w) < first(v) + size(v); }

private:
    static constexpr int32_t NONE = -1;

    // Depth-first numbers: number 0 is our root, and vertex_[k] the node with number k.
    void walk(const Adjacency& next, const std::vector<int32_t>& entries) {
        vertex_.push_back(NONE);
        parent_.push_back(NONE);
        is_entry_.assign(size_t(nodes_), 0);
        std::vector<std::pair<int32_t, int64_t>> stack;
        auto enter = [&](int32_t v, int32_t parent) {
            number_[size_t(v)] = int32_t(vertex_.size());
            vertex_.push_back(v);
            parent_.push_back(parent);
            stack.emplace_back(v, next.first[v]);
        };
        for (const int32_t entry : entries) is_entry_[size_t(entry)] = 1;
        // Entries first; then whatever none of them reaches is entered at its lowest node.
        auto walk_from = [&](int32_t start) {
            if (number_[size_t(start)] != NONE) return;
            is_entry_[size_t(start)] = 1;
            enter(start, 0);
            while (!stack.empty()) {
                auto& [v, at] = stack.back();
                if (at == next.first[v + 1]) {
                    stack.pop_back();
                    continue;
                }
                const int32_t w = next.node[size_t(at++)];
                if (number_[size_t(w)] == NONE) enter(w, number_[size_t(v)]);
            }
        };
        for (const int32_t entry : entries) walk_from(entry);
        for (int32_t v = 0; v < nodes_; ++v) walk_from(v);
    }

    void find_dominators() {
        const size_t count = vertex_.size();
        semi_.resize(count);
        label_.resize(count);
        ancestor_.assign(count, NONE);
        dominator_.assign(count, 0);
        for (size_t k = 0; k < count; ++k) semi_[k] = label_[k] = int32_t(k);
        std::vector<std::vector<int32_t>> bucket(count);
        for (int32_t k = int32_t(count) - 1; k > 0; --k) {
            const int32_t v = vertex_[size_t(k)], parent = parent_[size_t(k)];
            if (is_entry_[size_t(v)]) semi_[size_t(k)] = 0;
            for (const int32_t* p = previous_.begin(v); p != previous_.end(v); ++p)
                semi_[size_t(k)] = std::min(semi_[size_t(k)], semi_[size_t(best(number_[size_t(*p)]))]);
            bucket[size_t(semi_[size_t(k)])].push_back(k);
            ancestor_[size_t(k)] = parent;
            for (const int32_t w : bucket[size_t(parent)]) {
                const int32_t u = best(w);
                dominator_[size_t(w)] = semi_[size_t(u)] < semi_[size_t(w)] ? u : parent;
            }
            bucket[size_t(parent)].clear();
        }
        for (size_t k = 1; k < count; ++k)
            if (dominator_[k] != semi_[k]) dominator_[k] = dominator_[size_t(dominator_[k])];
    }

    // The node with the least semidominator between k and the root of its tree in the forest, with path compression.
    int32_t best(int32_t k) {
        if (ancestor_[size_t(k)] == NONE) return label_[size_t(k)];
        std::vector<int32_t>& path = path_;
        path.clear();
        for (int32_t at = k; ancestor_[size_t(ancestor_[size_t(at)])] != NONE; at = ancestor_[size_t(at)])
            path.push_back(at);
        while (!path.empty()) {
            const size_t at = size_t(path.back()), above = size_t(ancestor_[at]);
            path.pop_back();
            if (semi_[size_t(label_[above])] < semi_[size_t(label_[at])]) label_[at] = label_[above];
            ancestor_[at] = ancestor_[above];
        }
        return label_[size_t(k)];
    }

    void number_subtrees() {
        const size_t count = vertex_.size();
        std::vector<int32_t> size(count, 1), place(count, 0);
        for (size_t k = count; k-- > 1;) size[size_t(dominator_[k])] += size[k];
        // A dominator has a smaller number than what it dominates, so parents are placed before children.
        std::vector<int32_t> filled(count, 1);
        filled[0] = 0;
        order_.resize(count - 1);
        first_.assign(size_t(nodes_), 0);
        size_.assign(size_t(nodes_), 0);
        for (size_t k = 1; k < count; ++k) {
            const size_t above = size_t(dominator_[k]);
            place[k] = place[above] + filled[above];
            filled[above] += size[k];
            order_[size_t(place[k])] = vertex_[k];
            first_[size_t(vertex_[k])] = place[k];
            size_[size_t(vertex_[k])] = size[k];
        }
    }

    int32_t nodes_;
    const Adjacency& previous_;
    std::vector<int32_t> number_, vertex_, parent_, semi_, label_, ancestor_, dominator_, path_;
    std::vector<uint8_t> is_entry_;
    std::vector<int32_t> order_, first_, size_;
};

// True dominance: the greatest solution of the equations, read off the dominator tree.
//
// Entries are what node 0 calls and every node without a control predecessor (so code that the graph shows no way into
// is taken as entered at its top). The step count is the distance over control edges, the root counting 1, of the
// farthest dominated node; every way there stays inside the dominated part.
class ExactDominance final : public Analysis {
public:
    explicit ExactDominance(const GraphView& graph)
        : graph_(graph),
          next_(adjacency_of(graph, CONTROL, Direction::forward)),
          previous_(adjacency_of(graph, CONTROL, Direction::backward)),
          tree_(next_, previous_, entries_of(graph, previous_)) {
        eligible = instructions_of(graph);
        depth_.assign(size_t(graph.nodes), 0);
        seen_.assign(size_t(graph.nodes), -1);
    }

    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        for (size_t i = 0; i < count; ++i) {
            const int32_t root = roots[i];
            rows.steps[i] = depth(root);
            rows.active[i] = tree_.size(root);
            for (int32_t k = 0; k < tree_.size(root); ++k)
                set_bit(rows.row(i), tree_.order()[size_t(tree_.first(root) + k)]);
        }
    }

private:
    static std::vector<int32_t> entries_of(const GraphView& graph, const Adjacency& previous) {
        std::vector<int32_t> entries;
        for (int64_t e = 0; e < graph.edges; ++e)
            if (graph.edge_flow[e] == CALL && graph.source[e] == 0) entries.push_back(graph.target[e]);
        for (int32_t v = 0; v < graph.nodes; ++v)
            if (previous.degree(v) == 0) entries.push_back(v);
        return entries;
    }

    // What leaves a node by its only way is one deeper than what that way leads to, if it is dominated at all.
    int32_t depth(int32_t root) {
        path_.clear();
        int32_t at = root, found = 0;
        for (; depth_[size_t(at)] == 0; at = *next_.begin(at)) {
            path_.push_back(at);
            if (next_.degree(at) == 1) {
                const int32_t v = *next_.begin(at);
                if (v != at && tree_.dominates(at, v)) continue;
            }
            break;
        }
        if (depth_[size_t(at)] == 0) {
            depth_[size_t(at)] = walked_depth(at);
            path_.pop_back();
        }
        for (found = depth_[size_t(at)]; !path_.empty(); path_.pop_back()) depth_[size_t(path_.back())] = ++found;
        return depth_[size_t(root)];
    }

    int32_t walked_depth(int32_t root) {
        queue_.assign(1, {root, 1});
        seen_[size_t(root)] = root;
        for (size_t k = 0; k < queue_.size(); ++k)
            for (const int32_t* v = next_.begin(queue_[k].first); v != next_.end(queue_[k].first); ++v)
                if (seen_[size_t(*v)] != root && tree_.dominates(root, *v)) {
                    seen_[size_t(*v)] = root;
                    queue_.emplace_back(*v, queue_[k].second + 1);
                }
        return queue_.back().second;
    }

    GraphView graph_;
    Adjacency next_, previous_;
    DominatorTree tree_;
    std::vector<int32_t> depth_, seen_, path_;
    std::vector<std::pair<int32_t, int32_t>> queue_;
};

}  // namespace

std::unique_ptr<Analysis> dominance_analysis(const GraphView& graph, Mode mode) {
    if (mode == Mode::reference) return std::make_unique<ReferenceDominance>(graph);
    return std::make_unique<ExactDominance>(graph);
}

}  // namespace apportion

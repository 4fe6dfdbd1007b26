// Liveness: which variables are still to be read after the root.
#include "analysis.h"
#include "analysis_walk.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>

namespace apportion {
namespace {

// Live sets are sparse lists; beyond this many entries (1 GiB) the graph is refused.
constexpr size_t MOST_ENTRIES = size_t(1) << 28;

[[noreturn]] void refuse() {
    throw std::length_error("the live sets of this graph need more than 1 GiB");
}

// Strongly connected components of control and data flow, numbered so that a node reaches only its own and lower numbers.
std::vector<int32_t> components_of(const Adjacency& next) {
    const int32_t nodes = int32_t(next.first.size()) - 1;
    std::vector<int32_t> component(size_t(nodes), -1), index(size_t(nodes), -1), low(size_t(nodes), 0), open;
    std::vector<std::pair<int32_t, int64_t>> stack;
    int32_t visited = 0, components = 0;
    for (int32_t start = 0; start < nodes; ++start) {
        if (index[size_t(start)] != -1) continue;
        stack.emplace_back(start, next.first[start]);
        while (!stack.empty()) {
            const int32_t v = stack.back().first;
            int64_t& at = stack.back().second;
            if (index[size_t(v)] == -1) {
                index[size_t(v)] = low[size_t(v)] = visited++;
                open.push_back(v);
            }
            if (at < next.first[v + 1]) {
                const int32_t w = next.node[size_t(at++)];
                if (index[size_t(w)] == -1) stack.emplace_back(w, next.first[w]);
                else if (component[size_t(w)] == -1) low[size_t(v)] = std::min(low[size_t(v)], index[size_t(w)]);
                continue;
            }
            if (low[size_t(v)] == index[size_t(v)]) {
                int32_t w;
                do {
                    w = open.back();
                    open.pop_back();
                    component[size_t(w)] = components;
                } while (w != v);
                ++components;
            }
            stack.pop_back();
            if (!stack.empty()) {
                int32_t& above = low[size_t(stack.back().first)];
                above = std::min(above, low[size_t(v)]);
            }
        }
    }
    return component;
}

// How deep the reference's forward walk over control and data edges must go to meet the labelled nodes.
class LabelDepth {
public:
    LabelDepth(const GraphView& graph, const Adjacency& control, const Adjacency& data)
        : next_(joined(control, data)),
          previous_(joined(adjacency_of(graph, CONTROL, Direction::backward),
                           adjacency_of(graph, DATA, Direction::backward))),
          component_(components_of(next_)),
          walk_(next_, Mode::reference) {
        target_.assign(size_t(graph.nodes), 0);
    }

    // The deepest level at which the walk from `root` pops one of `labels`; 0 when it meets none.
    int64_t of(int32_t root, const std::vector<int32_t>& labels) {
        size_t left = 0;
        for (const int32_t v : labels)
            if (may_be_met(root, v)) {
                target_[size_t(v)] = 1;
                ++left;
            }
        int32_t deepest = 0, last_level = std::numeric_limits<int32_t>::max();
        walk_.start(root);
        while (left > 0 || last_level != std::numeric_limits<int32_t>::max()) {
            const Walk::Event* event = walk_.pop();
            if (event == nullptr || event->level > last_level) break;
            if (!target_[size_t(event->node)]) continue;
            deepest = std::max(deepest, event->level);
            if (event->level != walk_.depth(event->node)) continue;
            // All met once: some of them may be popped a second time, one level further down.
            if (--left == 0) last_level = event->level + 1;
        }
        for (const int32_t v : labels) target_[size_t(v)] = 0;
        return deepest;
    }

private:
    // No, if all ways to v come from components above the root's; then the walk need not look for it.
    bool may_be_met(int32_t root, int32_t v) const {
        return v == root || std::any_of(previous_.begin(v), previous_.end(v), [&](int32_t p) {
                   return component_[size_t(p)] <= component_[size_t(root)];
               });
    }

    Adjacency next_, previous_;
    std::vector<int32_t> component_;
    Walk walk_;
    std::vector<uint8_t> target_;
};

class Liveness : public Analysis {
public:
    explicit Liveness(const GraphView& graph)
        : graph_(graph),
          control_(adjacency_of(graph, CONTROL, Direction::forward)),
          previous_(adjacency_of(graph, CONTROL, Direction::backward)),
          data_(adjacency_of(graph, DATA, Direction::forward)),
          operands_(adjacency_of(graph, DATA, Direction::backward)) {}

protected:
    static void answer(size_t i, int64_t steps, const std::vector<int32_t>& labels, const Rows& rows) {
        rows.steps[i] = steps;
        rows.active[i] = int64_t(labels.size());
        for (const int32_t v : labels) set_bit(rows.row(i), v);
    }

    GraphView graph_;
    Adjacency control_, previous_, data_, operands_;
};

// The reference: every data source is a variable of its own, constants too, and the worklist starts at the instructions
// that nothing follows. Its order decides when the reference gives up, because a node whose set is empty queues its
// predecessors every time.
class ReferenceLiveness final : public Liveness {
public:
    explicit ReferenceLiveness(const GraphView& graph) : Liveness(graph) {
        live_in_.resize(size_t(graph.nodes));
        if (!solve()) return;
        for (int32_t v = 0; v < graph.nodes; ++v)
            if (std::any_of(control_.begin(v), control_.end(v),
                            [&](int32_t w) { return !live_in_[size_t(w)].empty(); }))
                eligible.push_back(v);
    }

    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        LabelDepth depth(graph_, control_, data_);
        std::vector<int32_t> labels;
        for (size_t i = 0; i < count; ++i) {
            union_after(roots[i], labels);
            answer(i, depth.of(roots[i], labels), labels, rows);
        }
    }

private:
    void union_after(int32_t v, std::vector<int32_t>& out) const {
        out.clear();
        for (const int32_t* w = control_.begin(v); w != control_.end(v); ++w) merge(out, live_in_[size_t(*w)]);
    }

    static void merge(std::vector<int32_t>& into, const std::vector<int32_t>& other) {
        if (into.empty()) {
            into = other;
            return;
        }
        const size_t middle = into.size();
        into.insert(into.end(), other.begin(), other.end());
        std::inplace_merge(into.begin(), into.begin() + std::ptrdiff_t(middle), into.end());
        into.erase(std::unique(into.begin(), into.end()), into.end());
    }

    bool solve() {
        std::deque<int32_t> queue;
        std::vector<uint8_t> queued(size_t(graph_.nodes), 0);
        for (int32_t v = 0; v < graph_.nodes; ++v)
            if (graph_.node_type[v] == INSTRUCTION && control_.degree(v) == 0) {
                queue.push_back(v);
                queued[size_t(v)] = 1;
            }
        const int64_t most = std::max<int64_t>(2 * int64_t(graph_.nodes), 5000);
        int64_t pops = 0;
        size_t entries = 0;
        std::vector<int32_t> in, killed, used;
        while (!queue.empty()) {
            if (++pops > most) {
                init_error = "Failed to terminate liveness computation in " + std::to_string(most) + " steps";
                return false;
            }
            const int32_t u = queue.front();
            queue.pop_front();
            queued[size_t(u)] = 0;
            union_after(u, in);
            killed.assign(data_.begin(u), data_.end(u));
            std::sort(killed.begin(), killed.end());
            in.erase(std::remove_if(in.begin(), in.end(),
                                    [&](int32_t v) {
                                        return std::binary_search(killed.begin(), killed.end(), v);
                                    }),
                     in.end());
            used.assign(operands_.begin(u), operands_.end(u));
            std::sort(used.begin(), used.end());
            used.erase(std::unique(used.begin(), used.end()), used.end());
            merge(in, used);
            std::vector<int32_t>& stored = live_in_[size_t(u)];
            if (!in.empty() && in == stored) continue;
            entries += in.size() - stored.size();
            if (entries > MOST_ENTRIES) refuse();
            stored = in;
            for (const int32_t* p = previous_.begin(u); p != previous_.end(u); ++p)
                if (!queued[size_t(*p)]) {
                    queue.push_back(*p);
                    queued[size_t(*p)] = 1;
                }
        }
        return true;
    }

    std::vector<std::vector<int32_t>> live_in_;
};

// Textbook liveness: a variable is a definition, that is an argument, or an instruction's result with all the nodes that
// stand for its uses. Constants are not variables. Each use is followed back until the definition, block by block, so
// the cost is the size of the answer at the ends of the blocks, and code that never leaves its loop is covered like any
// other. Inside a block the sets are made anew, from its end backwards, when they are asked for.
class ExactLiveness final : public Liveness {
public:
    explicit ExactLiveness(const GraphView& graph) : Liveness(graph) {
        group_variables();
        find_blocks();
        find_live_ends();
        std::vector<int32_t> found;
        Backwards state(*this);
        for (int32_t block = 0; block < blocks(); ++block)
            state.walk(block, [&](int32_t v) {
                if (v != 0 && graph.node_type[v] == INSTRUCTION && !state.live().empty()) found.push_back(v);
            });
        std::sort(found.begin(), found.end());
        eligible = std::move(found);
    }

    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        ReadDepth depth(*this);
        Backwards state(*this);
        std::vector<std::pair<int32_t, size_t>> asked(count);  // place in the blocks, number of the root
        for (size_t i = 0; i < count; ++i) asked[i] = {place_[size_t(roots[i])], i};
        std::sort(asked.rbegin(), asked.rend());
        std::vector<int32_t> labels;
        size_t next = 0;
        while (next < count) {
            const int32_t block = block_[size_t(roots[asked[next].second])];
            state.walk(block, [&](int32_t v) {
                for (; next < count && asked[next].first == place_[size_t(v)]; ++next) {
                    labels.clear();
                    for (const int32_t g : state.live())
                        labels.insert(labels.end(), uses_[size_t(g)].begin(), uses_[size_t(g)].end());
                    answer(asked[next].second, depth.of(v, state.live()), labels, rows);
                }
            });
        }
    }

private:
    // How far control must go from a root to meet a read of each live variable, the root being 1. (The reference's count
    // walks data edges too, and leaves out every variable that was defined before the root.)
    class ReadDepth {
    public:
        explicit ReadDepth(const ExactLiveness& owner)
            : owner_(owner), met_(size_t(owner.graph_.nodes), -1), wanted_(owner.uses_.size(), -1) {}

        int64_t of(int32_t root, const std::vector<int32_t>& live) {
            ++round_;
            for (const int32_t g : live) wanted_[size_t(g)] = round_;
            size_t left = live.size();
            queue_.assign(1, root);
            met_[size_t(root)] = round_;
            int64_t level = 1;
            for (size_t head = 0; left > 0 && head < queue_.size(); ++level)
                for (const size_t end = queue_.size(); head < end; ++head)
                    for (const int32_t* w = owner_.control_.begin(queue_[head]); w != owner_.control_.end(queue_[head]); ++w) {
                        for (const int32_t* x = owner_.operands_.begin(*w); x != owner_.operands_.end(*w); ++x) {
                            const int32_t g = owner_.variable_[size_t(*x)];
                            if (g < 0 || wanted_[size_t(g)] != round_) continue;
                            wanted_[size_t(g)] = -1;
                            --left;
                        }
                        if (met_[size_t(*w)] == round_) continue;
                        met_[size_t(*w)] = round_;
                        queue_.push_back(*w);
                    }
            return level;
        }

    private:
        const ExactLiveness& owner_;
        std::vector<int32_t> met_, wanted_;  // by node, by variable: the round in which
        std::vector<int32_t> queue_;
        int32_t round_ = -1;
    };

    // The set of live variables, moved backwards through one block.
    class Backwards {
    public:
        explicit Backwards(const ExactLiveness& owner) : owner_(owner), at_(owner.uses_.size(), -1) {}

        const std::vector<int32_t>& live() const { return live_; }

        // Show each instruction of the block, last first, while `live` is what is live after it.
        template <class Show>
        void walk(int32_t block, Show show) {
            for (const int32_t g : live_) at_[size_t(g)] = -1;
            live_.clear();
            const std::vector<int32_t>& end = owner_.live_end_[size_t(block)];
            for (const int32_t g : end) add(g);
            for (int32_t i = owner_.first_[size_t(block) + 1]; i-- > owner_.first_[size_t(block)];) {
                const int32_t v = owner_.order_[size_t(i)];
                show(v);
                for (const int32_t g : owner_.defined_by(v)) remove(g);
                for (const int32_t* x = owner_.operands_.begin(v); x != owner_.operands_.end(v); ++x)
                    if (owner_.variable_[size_t(*x)] >= 0) add(owner_.variable_[size_t(*x)]);
            }
        }

    private:
        void add(int32_t g) {
            if (at_[size_t(g)] >= 0) return;
            at_[size_t(g)] = int32_t(live_.size());
            live_.push_back(g);
        }
        void remove(int32_t g) {
            const int32_t at = at_[size_t(g)];
            if (at < 0) return;
            live_[size_t(at)] = live_.back();
            at_[size_t(live_[size_t(at)])] = at;
            live_.pop_back();
            at_[size_t(g)] = -1;
        }

        const ExactLiveness& owner_;
        std::vector<int32_t> live_;
        std::vector<int32_t> at_;  // by variable: its place in live_, -1: not live
    };

    void group_variables() {
        std::map<std::vector<int32_t>, int32_t> by_producers;
        variable_.assign(size_t(graph_.nodes), -1);
        for (int32_t v = 0; v < graph_.nodes; ++v) {
            if (graph_.node_type[v] != VARIABLE) continue;
            std::vector<int32_t> producers(operands_.begin(v), operands_.end(v));
            std::sort(producers.begin(), producers.end());
            producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
            int32_t g = int32_t(uses_.size());
            if (!producers.empty()) g = by_producers.emplace(producers, g).first->second;
            if (g == int32_t(uses_.size())) {
                uses_.emplace_back();
                producers_.push_back(std::move(producers));
            }
            uses_[size_t(g)].push_back(v);
            variable_[size_t(v)] = g;
        }
    }

    // The variables that v defines; one more than once if it has several nodes.
    std::vector<int32_t> defined_by(int32_t v) const {
        std::vector<int32_t> found;
        for (const int32_t* x = data_.begin(v); x != data_.end(v); ++x)
            if (variable_[size_t(*x)] >= 0) found.push_back(variable_[size_t(*x)]);
        return found;
    }

    bool continues(int32_t v) const {  // v is the only way into the only node that follows it
        return control_.degree(v) == 1 && previous_.degree(*control_.begin(v)) == 1;
    }

    void find_blocks() {
        block_.assign(size_t(graph_.nodes), -1);
        place_.assign(size_t(graph_.nodes), -1);
        first_.push_back(0);
        auto add = [&](int32_t start) {
            for (int32_t v = start;; v = *control_.begin(v)) {
                block_[size_t(v)] = int32_t(first_.size()) - 1;
                place_[size_t(v)] = int32_t(order_.size());
                order_.push_back(v);
                if (!continues(v) || block_[size_t(*control_.begin(v))] >= 0) break;
            }
            first_.push_back(int32_t(order_.size()));
        };
        for (int32_t v = 0; v < graph_.nodes; ++v)
            if (previous_.degree(v) != 1 || !continues(*previous_.begin(v))) add(v);
        for (int32_t v = 0; v < graph_.nodes; ++v)  // rings without a way in
            if (block_[size_t(v)] < 0) add(v);
    }

    void find_live_ends() {
        live_end_.resize(size_t(blocks()));
        std::vector<int32_t> in(size_t(blocks()), -1), out(size_t(blocks()), -1), stack;
        size_t entries = 0;
        for (int32_t g = 0; g < int32_t(uses_.size()); ++g) {
            auto enter = [&](int32_t block) {
                if (in[size_t(block)] == g) return;
                in[size_t(block)] = g;
                stack.push_back(block);
            };
            for (const int32_t node : uses_[size_t(g)])
                for (const int32_t* u = data_.begin(node); u != data_.end(node); ++u)
                    if (!defined_before(*u, g)) enter(block_[size_t(*u)]);
            while (!stack.empty()) {
                const int32_t top = order_[size_t(first_[size_t(stack.back())])];
                stack.pop_back();
                for (const int32_t* p = previous_.begin(top); p != previous_.end(top); ++p) {
                    const int32_t block = block_[size_t(*p)];
                    if (out[size_t(block)] == g) continue;
                    out[size_t(block)] = g;
                    live_end_[size_t(block)].push_back(g);
                    if (++entries > MOST_ENTRIES) refuse();
                    if (!defined_in(block, g)) enter(block);
                }
            }
        }
    }

    bool defined_before(int32_t u, int32_t g) const {
        return std::any_of(producers_[size_t(g)].begin(), producers_[size_t(g)].end(), [&](int32_t p) {
            return block_[size_t(p)] == block_[size_t(u)] && place_[size_t(p)] < place_[size_t(u)];
        });
    }
    bool defined_in(int32_t block, int32_t g) const {
        return std::any_of(producers_[size_t(g)].begin(), producers_[size_t(g)].end(),
                           [&](int32_t p) { return block_[size_t(p)] == block; });
    }

    int32_t blocks() const { return int32_t(first_.size()) - 1; }

    std::vector<int32_t> variable_;                // by node: which variable it stands for, -1: none
    std::vector<std::vector<int32_t>> uses_;       // by variable: the nodes that stand for it
    std::vector<std::vector<int32_t>> producers_;  // by variable: the instructions that define it, ascending
    std::vector<int32_t> order_, first_;           // nodes block by block; where each block begins
    std::vector<int32_t> block_, place_;           // by node: its block, its place in order_
    std::vector<std::vector<int32_t>> live_end_;   // by block: the variables live after its last node
};

}  // namespace

std::unique_ptr<Analysis> liveness_analysis(const GraphView& graph, Mode mode) {
    if (mode == Mode::reference) return std::make_unique<ReferenceLiveness>(graph);
    return std::make_unique<ExactLiveness>(graph);
}

}  // namespace apportion

// Reachability and data dependence: what a breadth-first walk from the root meets.
#include "analysis_walk.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

namespace apportion {
namespace {

// Numbers given to keys; clearing costs nothing, for there is one clearing per walk.
class PairNumbers {
public:
    PairNumbers() : slots_(1024) {}

    void clear() {
        ++round_;
        used_ = 0;
    }

    // The number of this key, which becomes `next` if it has none.
    size_t number_of(uint64_t key, size_t next) {
        const Slot& slot = place_of(key);
        if (slot.round == round_) return slot.number;
        if (2 * ++used_ > slots_.size()) grow();
        place_of(key) = {key, next, round_};
        return next;
    }

private:
    struct Slot {
        uint64_t key = 0;
        size_t number = 0;
        uint64_t round = 0;
    };

    Slot& place_of(uint64_t key) {
        const size_t mask = slots_.size() - 1;
        size_t at = size_t((key * 0x9E3779B97F4A7C15u) >> 20) & mask;
        while (slots_[at].round == round_ && slots_[at].key != key) at = (at + 1) & mask;
        return slots_[at];
    }

    void grow() {
        std::vector<Slot> old(2 * slots_.size());
        old.swap(slots_);
        for (const Slot& slot : old)
            if (slot.round == round_) place_of(slot.key) = slot;
    }

    std::vector<Slot> slots_;
    size_t used_ = 0;
    uint64_t round_ = 1;
};

// How often the reference pops each node of a walk.
//
// Let d(v) be the depth of v, and let the queue entries of one level stand in their order. An entry of level L pushes
// its neighbour v if v is not marked yet, that is if d(v) = L + 1, or d(v) = L and v's first entry is still to come. Hence
//   fresh(v), entries at level d(v)     = sum of fresh(w) over edges w -> v with d(w) = d(v) - 1: the shortest paths;
//   again(v), entries at level d(v) + 1 = sum of before(w, v) over edges w -> v,
// where before(w, x) counts the entries of w at level d(x) that precede x's first one (w having depth d(x) or d(x) - 1).
// x's first entry was pushed by the first entry of its parent p, so with `ahead` the edges p -> w ranked before p -> x,
//   before(w, x) = 0                                    if d(w) = d(x) and w is first popped no earlier than x
//                = again(w)                             if d(w) = d(x) - 1 and w is first popped no later than p
//                = sum of before(y, p) over y -> w, + ahead   otherwise.
// Each value depends on values one level up, so the pairs wanted are gathered from the deepest level to the shallowest,
// and evaluated in the opposite order. Only pairs that some edge inside a level asks for are ever made.
class PopCounts {
public:
    PopCounts(const Adjacency& next, const Adjacency& previous, const std::vector<int64_t>& previous_rank)
        : next_(next), previous_(previous), previous_rank_(previous_rank) {
        const size_t nodes = next.first.size() - 1;
        fresh_.resize(nodes);
        again_.resize(nodes);
        order_.resize(nodes);
    }

    // Count the pops of a finished walk.
    void count(const Walk& walk) {
        walk_ = &walk;
        total_ = 0;
        repeated_.clear();
        int32_t order = 0;
        for (const Walk::Event& event : walk.events()) {
            const size_t v = size_t(event.node);
            if (event.level != walk.depth(event.node)) {
                repeated_.push_back({event.node, 0, 0});
                continue;
            }
            fresh_[v] = event.level == 1 ? 1 : 0;
            again_[v] = 0;
            order_[v] = order++;
        }
        for (const Walk::Event& event : walk.events()) {
            if (event.level != walk.depth(event.node)) continue;
            const int64_t paths = fresh_[size_t(event.node)];
            total_ = saturating_add(total_, paths);
            for (const int32_t* v = next_.begin(event.node); v != next_.end(event.node); ++v)
                if (walk.depth(*v) == event.level + 1)
                    fresh_[size_t(*v)] = saturating_add(fresh_[size_t(*v)], paths);
        }
        if (!repeated_.empty()) count_again();
    }

    int64_t total() const { return total_; }
    int64_t pops(int32_t v) const { return saturating_add(fresh_[size_t(v)], again_[size_t(v)]); }

private:
    // A level of k nodes that all follow all of the level before asks for k^3 terms; no program looks like that.
    static constexpr size_t MOST_TERMS = size_t(1) << 25;

    // before(w, x): `value` itself, and the pairs in terms_[first_term, last_term).
    struct Pair {
        int32_t w, x;
        int64_t value;
        size_t first_term, last_term;
    };
    struct Repeated {
        int32_t node;
        size_t first_term, last_term;
    };

    void count_again() {
        pairs_.clear();
        terms_.clear();
        numbers_.clear();
        size_t gathered = 0;
        for (size_t left = repeated_.size(); left > 0 || gathered < pairs_.size();) {
            // All pairs not yet gathered stand at one level.
            int32_t level = gathered < pairs_.size() ? walk_->depth(pairs_[gathered].x) : 0;
            if (left > 0) level = std::max(level, walk_->depth(repeated_[left - 1].node));
            for (; left > 0 && walk_->depth(repeated_[left - 1].node) == level; --left) {
                Repeated& repeated = repeated_[left - 1];
                repeated.first_term = terms_.size();
                want_all(repeated.node, repeated.node);
                repeated.last_term = terms_.size();
            }
            for (const size_t end = pairs_.size(); gathered < end; ++gathered) gather(gathered);
        }
        for (size_t i = pairs_.size(); i-- > 0;)
            pairs_[i].value = saturating_add(pairs_[i].value, sum(pairs_[i].first_term, pairs_[i].last_term));
        for (const Repeated& repeated : repeated_) {
            again_[size_t(repeated.node)] = sum(repeated.first_term, repeated.last_term);
            total_ = saturating_add(total_, again_[size_t(repeated.node)]);
        }
    }

    void gather(size_t i) {
        const Pair pair = pairs_[i];
        const int32_t p = walk_->parent(pair.x);
        const size_t first_term = terms_.size();
        int64_t ahead = 0;
        if (walk_->depth(pair.w) < walk_->depth(pair.x) && order_[size_t(p)] >= order_[size_t(pair.w)]) {
            want_all(pair.w, pair.w);
        } else {
            want_all(pair.w, p);
            for (int64_t k = previous_.first[pair.w]; k < previous_.first[pair.w + 1]; ++k)
                ahead += previous_.node[size_t(k)] == p && previous_rank_[size_t(k)] < walk_->parent_rank(pair.x);
        }
        pairs_[i] = {pair.w, pair.x, ahead, first_term, terms_.size()};
    }

    // Make before(y, x) a term, for each edge y -> w.
    void want_all(int32_t w, int32_t x) {
        const int32_t level = walk_->depth(x);
        for (const int32_t* y = previous_.begin(w); y != previous_.end(w); ++y) {
            // Entries of y stand at x's level if that is y's depth, or one more and y was queued again; at its own depth
            // y counts only if it is popped before x.
            const int32_t depth = walk_->depth(*y);
            if (depth == 0) continue;
            if (depth == level ? order_[size_t(*y)] >= order_[size_t(x)] : depth != level - 1 || !walk_->again(*y))
                continue;
            const size_t number = numbers_.number_of(uint64_t(uint32_t(*y)) << 32 | uint32_t(x), pairs_.size());
            if (number == pairs_.size()) pairs_.push_back({*y, x, 0, 0, 0});
            terms_.push_back(number);
        }
        if (terms_.size() > MOST_TERMS) throw std::length_error("counting the reference's queue needs more than 512 MiB");
    }

    int64_t sum(size_t first, size_t last) const {
        int64_t total = 0;
        for (size_t i = first; i < last; ++i) total = saturating_add(total, pairs_[terms_[i]].value);
        return total;
    }

    const Adjacency& next_;
    const Adjacency& previous_;
    const std::vector<int64_t>& previous_rank_;
    const Walk* walk_ = nullptr;
    std::vector<int64_t> fresh_, again_;
    std::vector<int32_t> order_;  // of first pops
    std::vector<Repeated> repeated_;
    std::vector<Pair> pairs_;
    std::vector<size_t> terms_;
    PairNumbers numbers_;
    int64_t total_ = 0;
};

// Roots that run into the same fork share one walk.
//
// If b1 -> b2 -> ... -> t where each b has one way out, the walk from b1 is b1, b2, ..., then the walk from t without
// the b's: they are marked, and where the walk from t meets them they lead only to each other and to t. So t's events,
// less those of the path, moved down by the length of the path, are b1's events. `exit_[v]` is v's t; a node on a
// ring without a fork is its own.
class WalkAnalysis final : public Analysis {
public:
    WalkAnalysis(const GraphView& graph, Kind kind, Mode mode) : graph_(graph), kind_(kind), mode_(mode) {
        if (kind == Kind::reachability) {
            next_ = adjacency_of(graph, CONTROL, Direction::forward);
            eligible = instructions_of(graph);
        } else {
            next_ = adjacency_of(graph, DATA, Direction::backward);
            for (int32_t v = 1; v < graph.nodes; ++v)
                if (graph.node_type[v] == VARIABLE) eligible.push_back(v);
        }
        find_previous();
        find_exits();
    }

    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        std::vector<std::pair<int32_t, size_t>> by_exit(count);
        for (size_t i = 0; i < count; ++i) by_exit[i] = {exit_[size_t(roots[i])], i};
        std::sort(by_exit.begin(), by_exit.end());
        Walk walk(next_, mode_);
        PopCounts pops(next_, previous_, previous_rank_);
        std::unordered_multimap<int32_t, size_t> asked;
        std::vector<uint8_t> reached(rows.row_bytes);
        for (size_t i = 0; i < count;) {
            const int32_t exit = by_exit[i].first;
            asked.clear();
            for (; i < count && by_exit[i].first == exit; ++i)
                asked.emplace(roots[by_exit[i].second], by_exit[i].second);
            walk.finish(exit);
            if (counts_pops()) pops.count(walk);
            answer(exit, walk, pops, asked, rows, reached);
        }
    }

private:
    bool counts_pops() const { return kind_ == Kind::reachability && mode_ == Mode::reference; }
    bool is_labelled(int32_t v) const {
        return kind_ == Kind::reachability || graph_.node_type[v] == INSTRUCTION;
    }

    void find_previous() {
        const size_t nodes = size_t(graph_.nodes);
        previous_.first.assign(nodes + 1, 0);
        for (const int32_t v : next_.node) ++previous_.first[size_t(v) + 1];
        for (size_t v = 0; v < nodes; ++v) previous_.first[v + 1] += previous_.first[v];
        previous_.node.resize(next_.node.size());
        previous_rank_.resize(next_.node.size());
        std::vector<int64_t> place(previous_.first.begin(), previous_.first.end() - 1);
        for (int32_t v = 0; v < graph_.nodes; ++v)
            for (int64_t i = next_.first[v]; i < next_.first[v + 1]; ++i) {
                const size_t at = size_t(place[size_t(next_.node[size_t(i)])]++);
                previous_.node[at] = v;
                previous_rank_[at] = i - next_.first[v];
            }
    }

    void find_exits() {
        constexpr int32_t UNKNOWN = -1, ON_PATH = -2;
        exit_.assign(size_t(graph_.nodes), UNKNOWN);
        std::vector<int32_t> path;
        for (int32_t v = 0; v < graph_.nodes; ++v) {
            path.clear();
            int32_t at = v;
            while (exit_[size_t(at)] == UNKNOWN && next_.degree(at) == 1) {
                exit_[size_t(at)] = ON_PATH;
                path.push_back(at);
                at = *next_.begin(at);
            }
            const bool ring = exit_[size_t(at)] == ON_PATH;
            if (exit_[size_t(at)] == UNKNOWN) exit_[size_t(at)] = at;
            const int32_t exit = exit_[size_t(at)];
            // What runs into a ring takes the node where it enters it; the nodes of the ring are their own.
            bool inside = ring;
            for (size_t i = path.size(); i-- > 0;) {
                exit_[size_t(path[i])] = inside ? path[i] : ring ? at : exit;
                if (path[i] == at) inside = false;
            }
        }
    }

    // Visit every node that runs into `exit`, deepest last, and answer those that were asked for.
    void answer(int32_t exit, const Walk& walk, const PopCounts& pops,
                const std::unordered_multimap<int32_t, size_t>& asked, const Rows& rows,
                std::vector<uint8_t>& reached) {
        struct Step {
            int32_t node;
            int64_t child;   // the next entry of previous_ to look at
            size_t last;     // the last event that is not of the path
            int64_t active;
            bool added;      // this node's label is not already among those that `exit` reaches
        };
        const std::vector<Walk::Event>& events = walk.events();
        int64_t labels = 0;
        for (const Walk::Event& event : events) {
            if (event.level != walk.depth(event.node) || !is_labelled(event.node)) continue;
            set_bit(reached.data(), event.node);
            ++labels;
        }
        if (on_path_.empty()) on_path_.resize(size_t(graph_.nodes));
        std::vector<Step> path;
        path.push_back({exit, previous_.first[exit], events.size() - 1,
                        counts_pops() ? pops.total() : labels, false});
        size_t left = asked.size();
        left -= emit(exit, 0, events[path.back().last].level, path.back().active, asked, rows, reached);
        while (left > 0) {
            Step& top = path.back();
            if (top.child == previous_.first[top.node + 1]) {
                leave(top.node, top.added, reached);
                path.pop_back();
                continue;
            }
            const int32_t v = previous_.node[size_t(top.child++)];
            if (v == exit || next_.degree(v) != 1 || exit_[size_t(v)] != exit) continue;
            Step step{v, previous_.first[v], top.last, top.active, false};
            on_path_[size_t(v)] = 1;
            while (on_path_[size_t(events[step.last].node)]) --step.last;
            const bool met = walk.depth(v) != 0;
            if (counts_pops()) {
                if (step.active != UNCOUNTABLE) step.active += 1 - (met ? pops.pops(v) : 0);
            } else if (!met && is_labelled(v)) {
                ++step.active;
            }
            if (!met && is_labelled(v)) {
                set_bit(reached.data(), v);
                step.added = true;
            }
            left -= emit(v, int64_t(path.size()), events[step.last].level, step.active, asked, rows, reached);
            path.push_back(step);
        }
        for (const Step& step : path) leave(step.node, step.added, reached);
        for (const Walk::Event& event : events) reached[size_t(event.node >> 3)] = 0;
    }

    void leave(int32_t v, bool added, std::vector<uint8_t>& reached) {
        on_path_[size_t(v)] = 0;
        if (added) reached[size_t(v >> 3)] = uint8_t(reached[size_t(v >> 3)] & ~(1u << (v & 7)));
    }

    size_t emit(int32_t root, int64_t path, int32_t level, int64_t active,
                const std::unordered_multimap<int32_t, size_t>& asked, const Rows& rows,
                const std::vector<uint8_t>& reached) const {
        const auto [first, last] = asked.equal_range(root);
        size_t answered = 0;
        for (auto at = first; at != last; ++at, ++answered) {
            const size_t i = at->second;
            rows.steps[i] = path + level - (kind_ == Kind::datadep ? 1 : 0);
            rows.active[i] = active;
            std::memcpy(rows.row(i), reached.data(), rows.row_bytes);
        }
        return answered;
    }

    GraphView graph_;
    Kind kind_;
    Mode mode_;
    Adjacency next_, previous_;  // previous_ has no edge numbers
    std::vector<int64_t> previous_rank_;  // of each entry of previous_: its place among the neighbours of its source
    std::vector<int32_t> exit_;
    std::vector<uint8_t> on_path_;
};

}  // namespace

std::unique_ptr<Analysis> walk_analysis(const GraphView& graph, Kind kind, Mode mode) {
    return std::make_unique<WalkAnalysis>(graph, kind, mode);
}

}  // namespace apportion

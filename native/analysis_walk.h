// The breadth-first walk that reachability, data dependence and liveness share.
#pragma once
#include "analysis.h"

namespace apportion {

// A breadth-first walk, in either of two manners.
//
// exact: every node is queued once; its level is its true distance from the root, the root's being 1.
//
// reference: the original marks a node when it is *popped*, so a node v at distance d can be queued many times:
// at level d, and, by entries of level d that are popped before v's first one, at level d + 1; never later, for by
// then v is marked. How often it is queued can be exponential, but whatever an entry of v pushes, the first entry
// of v at that level has pushed before it. So the walk follows only the first entry of each node at each of its
// two levels: at most two pops per node, in the original's order, which give all levels exactly.
class Walk {
public:
    struct Event {
        int32_t node;
        int32_t level;
    };

    Walk(const Adjacency& next, Mode mode) : next_(next), reference_(mode == Mode::reference) {
        const size_t nodes = next.first.size() - 1;
        state_.resize(nodes);
        parent_.resize(nodes);
        parent_rank_.resize(nodes);
    }

    void start(int32_t root) {
        for (const Event& event : events_) state_[size_t(event.node)] = State{};
        events_.clear();
        popped_ = 0;
        state_[size_t(root)].depth = 1;
        parent_[size_t(root)] = -1;
        events_.push_back({root, 1});
    }

    // The next event, after its neighbours were queued; null at the end of the walk.
    const Event* pop() {
        if (popped_ == events_.size()) return nullptr;
        const Event event = events_[popped_];
        state_[size_t(event.node)].marked = true;
        for (int64_t i = next_.first[event.node]; i < next_.first[event.node + 1]; ++i) {
            const int32_t v = next_.node[size_t(i)];
            State& state = state_[size_t(v)];
            if (state.marked) continue;
            if (state.depth == 0) {
                state.depth = event.level + 1;
                parent_[size_t(v)] = event.node;
                parent_rank_[size_t(v)] = i - next_.first[event.node];
                events_.push_back({v, event.level + 1});
            } else if (reference_ && state.depth == event.level && !state.again) {
                state.again = true;
                events_.push_back({v, event.level + 1});
            }
        }
        return &events_[popped_++];
    }

    void finish(int32_t root) {
        start(root);
        while (pop() != nullptr) {
        }
    }

    const std::vector<Event>& events() const { return events_; }     // levels never fall
    int32_t depth(int32_t v) const { return state_[size_t(v)].depth; }  // 0: not reached
    bool again(int32_t v) const { return state_[size_t(v)].again; }  // also queued one level below its depth
    int32_t parent(int32_t v) const { return parent_[size_t(v)]; }   // who queued v first; -1 for the root
    int64_t parent_rank(int32_t v) const { return parent_rank_[size_t(v)]; }  // v's place among parent's neighbours

private:
    struct State {
        int32_t depth = 0;
        bool marked = false;
        bool again = false;
    };

    const Adjacency& next_;
    bool reference_;
    std::vector<State> state_;
    std::vector<int32_t> parent_;
    std::vector<int64_t> parent_rank_;
    std::vector<Event> events_;
    size_t popped_ = 0;
};

}  // namespace apportion

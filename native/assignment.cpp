// Shortest augmenting paths (Crouse, IEEE Trans. Aerospace and Electronic Systems 52(4), 2016) over the places that can
// matter: those taken, and the next free one of each slot. A further free place of the slot costs more.
#include "assignment.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace apportion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Place {
    int64_t slot, rank;  // rank 0: the last of the slot's queue
    double price = 0;
    int64_t job = -1;  // who has it
    // Of the path that is sought:
    double cost = kInfinity;
    int64_t from = -1;      // the job before it
    int64_t position = 0;   // among columns that the path has not reached, as SciPy lists them
    bool reached = false;
};

// Columns that a path has not reached: at first the last column first; who leaves is replaced by the last in the list.
// Of two that cost the same, their positions decide.
class Unreached {
public:
    explicit Unreached(int64_t columns) : columns_(columns), left_(columns) {}

    void reset() {
        moved_.clear();
        left_ = columns_;
    }

    int64_t at_first(int64_t column) const { return columns_ - 1 - column; }

    // Take out whoever is at a position; the column that takes its place, or -1.
    int64_t leave(int64_t position) {
        --left_;
        if (position == left_) return -1;
        const auto found = moved_.find(left_);
        const int64_t column = found == moved_.end() ? columns_ - 1 - left_ : found->second;
        moved_[position] = column;
        return column;
    }

private:
    int64_t columns_, left_;
    std::unordered_map<int64_t, int64_t> moved_;  // position to column, where it is not the first
};

class Assignment {
public:
    Assignment(const double* seconds, const double* age, int64_t count, int64_t slots)
        : seconds_(seconds), age_(age), count_(count), slots_(slots), unreached_(count * slots), places_of_(slots),
          price_(count, 0.0), place_of_(count, -1), on_path_(count) {
        for (int64_t slot = 0; slot < slots; ++slot) open(slot);
    }

    std::vector<int64_t> run() {
        for (int64_t job = 0; job < count_; ++job) {
            const size_t free = search(job);
            const double least = places_[free].cost;
            for (int64_t other = 0; other < job; ++other)
                if (on_path_[other]) price_[other] += least - places_[place_of_[other]].cost;
            price_[job] += least;
            for (Place& place : places_)
                if (place.reached) place.price -= least - place.cost;
            give(free, job);
            if (places_[free].rank + 1 < count_) open(places_[free].slot);
        }
        std::vector<int64_t> columns(count_);
        for (int64_t job = 0; job < count_; ++job) columns[job] = column_of(places_[place_of_[job]]);
        return columns;
    }

private:
    int64_t column_of(const Place& place) const { return place.rank * slots_ + place.slot; }

    void open(int64_t slot) {
        Place place;
        place.slot = slot;
        place.rank = static_cast<int64_t>(places_of_[slot].size());
        places_of_[slot].push_back(places_.size());
        places_.push_back(place);
    }

    // The free place at the end of the cheapest path from a job.
    size_t search(int64_t job) {
        std::fill(on_path_.begin(), on_path_.end(), 0);
        unreached_.reset();
        for (Place& place : places_) {
            place.cost = kInfinity;
            place.reached = false;
            place.position = unreached_.at_first(column_of(place));
        }
        double so_far = 0;
        while (true) {
            on_path_[job] = 1;
            size_t best = places_.size();
            for (size_t at = 0; at < places_.size(); ++at) {
                Place& place = places_[at];
                if (place.reached) continue;
                const double own = static_cast<double>(place.rank + 1) * seconds_[job * slots_ + place.slot] + age_[job];
                const double cost = so_far + own - price_[job] - place.price;
                if (cost < place.cost) place.cost = cost, place.from = job;
                if (best == places_.size() || before(place, places_[best])) best = at;
            }
            Place& next = places_[best];
            so_far = next.cost;
            next.reached = true;
            move(unreached_.leave(next.position), next.position);
            if (next.job < 0) return best;
            job = next.job;
        }
    }

    // Of equal costs a free place wins, of free ones the last in the list, of taken ones the first.
    static bool before(const Place& left, const Place& right) {
        if (left.cost != right.cost) return left.cost < right.cost;
        if ((left.job < 0) != (right.job < 0)) return left.job < 0;
        return left.job < 0 ? left.position > right.position : left.position < right.position;
    }

    void move(int64_t column, int64_t position) {
        if (column < 0) return;
        const std::vector<size_t>& places = places_of_[column % slots_];
        const size_t rank = static_cast<size_t>(column / slots_);
        if (rank < places.size()) places_[places[rank]].position = position;
    }

    // Along the path, each job gives up its place for the next.
    void give(size_t free, int64_t job) {
        size_t at = free;
        while (true) {
            const int64_t taker = places_[at].from;
            places_[at].job = taker;
            const int64_t given_up = place_of_[taker];
            place_of_[taker] = static_cast<int64_t>(at);
            if (taker == job) return;
            at = static_cast<size_t>(given_up);
        }
    }

    const double* seconds_;
    const double* age_;
    const int64_t count_, slots_;
    Unreached unreached_;
    std::vector<Place> places_;
    std::vector<std::vector<size_t>> places_of_;  // (slots,): places by rank
    std::vector<double> price_;                   // (N,)
    std::vector<int64_t> place_of_;               // (N,): into places_
    std::vector<char> on_path_;                   // (N,)
};

}  // namespace

std::vector<int64_t> least_completions(const double* seconds, const double* age, int64_t count, int64_t slots) {
    return Assignment(seconds, age, count, slots).run();
}

}  // namespace apportion

// Places by earliest finish, and holes in that schedule filled where that lets a job end sooner.
#include "schedule_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace apportion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Plan::Plan(const ScheduleJobs& jobs, const ScheduleOptions& options)
    : jobs_(jobs), slots_(options.slots), systems_(options.slots.size()), places_(jobs.count) {
    for (size_t system = 0; system < systems_.size(); ++system) systems_[system].free = slots_[system];
}

void Plan::pass(System& system, double now) {
    auto& ends = system.ends;
    while (!ends.empty() && ends.begin()->first <= now) {
        system.free += ends.begin()->second;
        ends.erase(ends.begin());
    }
    auto& change = system.change;
    while (!change.empty() && change.begin()->first <= now) {
        system.spare += change.begin()->second;
        change.erase(change.begin());
        --holes_;
    }
}

double Plan::earliest(const System& system, int64_t width, double now) const {
    width -= system.free;
    if (width <= 0) return now;
    for (const auto& [time, count] : system.ends) {
        width -= count;
        if (width <= 0) return time;
    }
    return kInfinity;
}

void Plan::add(System& system, double from, double until, int64_t count) {
    for (const auto& [time, by] : {std::pair{from, count}, std::pair{until, -count}}) {
        const auto [place, fresh] = system.change.try_emplace(time, 0);
        holes_ += fresh;
        place->second += by;
        if (place->second == 0) {
            system.change.erase(place);
            --holes_;
        }
    }
}

void Plan::arrive(int64_t job, double now) {
    const int64_t width = jobs_.width[job];
    const double* seconds = jobs_.predicted + job * systems_.size();
    Place best{systems_.size(), now, kInfinity};
    for (size_t at = 0; at < systems_.size(); ++at) {
        if (width > slots_[at] || !std::isfinite(seconds[at])) continue;
        pass(systems_[at], now);
        const double start = earliest(systems_[at], width, now);
        if (start + seconds[at] < best.end) best = {at, start, start + seconds[at]};
    }
    places_[job] = best;
    System& system = systems_[best.system];
    int64_t left = width;
    const int64_t at_once = std::min(system.free, left);
    system.free -= at_once;
    left -= at_once;
    if (at_once > 0 && now < best.start) add(system, now, best.start, at_once);
    while (left > 0) {
        const auto first = system.ends.begin();
        const int64_t taken = std::min(first->second, left);
        if (first->first < best.start) add(system, first->first, best.start, taken);
        left -= taken;
        first->second -= taken;
        if (first->second == 0) system.ends.erase(first);
    }
    system.ends[best.end] += width;
}

// The earliest start in slots given away already that are empty here, so that the job ends before an instant.
double Plan::in_holes(const System& system, int64_t width, double seconds, double now, double before) const {
    int64_t spare = system.spare;
    double start = spare >= width ? now : kInfinity;
    for (const auto& [time, by] : system.change) {
        if (start + seconds <= time) break;
        spare += by;
        if (spare < width)
            start = kInfinity;
        else if (std::isinf(start))
            start = time;
        if (std::min(start, time) + seconds >= before) return kInfinity;
    }
    return start + seconds < before ? start : kInfinity;
}

bool Plan::improve(int64_t job, double now) {
    const Place old = places_[job];
    const int64_t width = jobs_.width[job];
    const double* seconds = jobs_.predicted + job * systems_.size();
    add(systems_[old.system], old.start, old.end, width);
    Place best = old;
    for (size_t at = 0; at < systems_.size(); ++at) {
        if (width > slots_[at] || !std::isfinite(seconds[at])) continue;
        pass(systems_[at], now);
        const double start = in_holes(systems_[at], width, seconds[at], now, best.end);
        if (std::isfinite(start)) best = {at, start, start + seconds[at]};
    }
    add(systems_[best.system], best.start, best.end, -width);
    places_[job] = best;
    return best.start != old.start || best.system != old.system;
}

}  // namespace apportion

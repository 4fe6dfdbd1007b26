// A plan in which no job ends later than with plain earliest finish, as long as predicted times hold.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "schedule.h"

namespace apportion {

// Plain earliest finish gives each job a system and slots at its arrival for good, and fills no hole: slots that are
// free before a wide job can start stay empty, and the next job is put behind it. The plan works out that schedule
// and lets jobs end sooner in slots that it has given away already. What it has not given away yet is left alone:
// later jobs will get it. So each job always has a place that ends no later than there.
class Plan {
public:
    struct Place {
        size_t system;
        double start, end;
    };

    Plan(const ScheduleJobs& jobs, const ScheduleOptions& options);

    const Place& of(int64_t job) const { return places_[job]; }
    bool holes() const { return holes_ > 0; }

    // The place that earliest finish gives the job. Time must not go back between calls.
    void arrive(int64_t job, double now);

    // Move a job that has not started to where it ends sooner; whether there was such a place.
    bool improve(int64_t job, double now);

private:
    struct System {
        int64_t free;                      // slots that earliest finish has not given away, from now on
        std::map<double, int64_t> ends;    // instants at which others become free there
        int64_t spare = 0;                 // slots given away there that are empty here now
        std::map<double, int64_t> change;  // how that number changes later
    };

    void pass(System& system, double now);
    double earliest(const System& system, int64_t width, double now) const;
    void add(System& system, double from, double until, int64_t count);
    double in_holes(const System& system, int64_t width, double seconds, double now, double before) const;

    const ScheduleJobs& jobs_;
    std::vector<int64_t> slots_;
    std::vector<System> systems_;
    std::vector<Place> places_;  // (N,)
    int64_t holes_ = 0;          // changes to come, over all systems
};

}  // namespace apportion

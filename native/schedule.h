// Jobs over systems, run to end: who starts when and where, by queues, backfilling and predictions.
#pragma once
#include <cstdint>
#include <vector>

namespace apportion {

enum class Backfill : int32_t { none = 0, easy = 1, conservative = 2 };

struct ScheduleJobs {
    int64_t count = 0;
    const double* arrival = nullptr;    // (N,), never falling
    const int64_t* width = nullptr;     // (N,): slots at once
    const double* truth = nullptr;      // (N, S): seconds, infinite where the job cannot run
    const double* predicted = nullptr;  // (N, S): what the policy believes; may be `truth` itself
    const double* sigma = nullptr;      // (N, S): of log2 of `predicted`; null: all 0
    const double* limit = nullptr;      // (N,): seconds after which a job is killed; null: none
    const int32_t* only = nullptr;      // (N,): the one system of a job, -1 leaves the choice; null: all -1
    const int32_t* program = nullptr;   // (N,): class, for learning; null: none
    const double* key = nullptr;        // (N,): order of the queue, least first; null: by arrival
    const double* age = nullptr;        // (N,): seconds of waiting after which a job goes before all that have not
};

struct ScheduleOptions {
    std::vector<int64_t> slots;  // (S,)
    Backfill backfill = Backfill::none;
    int64_t depth = 100;       // waiting jobs looked at; 0: all
    bool late = false;         // the system is chosen when the job can start, not when it arrives
    bool by_limit = false;     // reservations trust limits instead of predictions
    bool requeue = false;      // a killed job comes back with twice its limit
    bool learn = false;        // times of finished jobs correct predictions of their class
    double quantile_z = 0;     // decisions by t * 2^(z * sigma)
    double tie = 0;            // finishes nearer than tie * (sigma of the pair) are equal: the sooner start wins
    double repeat_sigma = 0;   // of log2 of a run repeated
    double explore = 0;        // part of all slot time that trials of systems and starting jobs again may cost
    bool list = false;         // late: any waiting job that fits may start, none waits for one ahead of it
    bool plan = false;         // late: as long as predicted times hold, no job ends later than with earliest finish
    int64_t programs = 0;
    // For learning: see ClassTimes.
    const double* class_sigma = nullptr;      // (P, S)
    const double* class_deviation = nullptr;  // (P, S)
    double trust = 1;
};

struct ScheduleResult {
    std::vector<int32_t> system;
    std::vector<double> start, end, predicted;
    std::vector<uint8_t> killed;
    double lost_slot_seconds = 0;
    int64_t explored = 0, restarted = 0;
    double head_delay = 0;  // the most that a reserved head started after its first reservation
};

// Queues in order of arrival, no hole filled, one system chosen for good: no events are needed. Jobs without
// `only` take the earliest end, which must be by true times.
ScheduleResult schedule_in_order(const ScheduleJobs& jobs, const ScheduleOptions& options);

// Everything else: ends before arrivals before decisions at each instant.
ScheduleResult schedule_by_events(const ScheduleJobs& jobs, const ScheduleOptions& options);

}  // namespace apportion

// Jobs in rounds, as Gavel runs them: each round a job has a system or none, by shares that a policy gives.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace apportion {

struct RoundJobs {
    int64_t count = 0;
    const double* arrival = nullptr;  // (N,), never falling
    const int64_t* width = nullptr;   // (N,)
    const int64_t* steps = nullptr;   // (N,)
    const double* speed = nullptr;    // (N, S): steps per second; 0: cannot run
};

struct RoundOptions {
    std::vector<int64_t> slots;        // (S,)
    double seconds = 360;              // of a round
    double between_allocations = 1920;
    bool fill = true;                  // jobs with no claim may use what is left
    bool drop = false;                 // give up a job of several slots with fewer steps left than slots
};

struct RoundResult {
    std::vector<double> start, end, ran;  // (N,), (N,), (N, S)
    std::vector<uint8_t> dropped;
    int64_t rounds = 0, allocations = 0, pieces = 0;
};

// Shares (n, S) of the active jobs, by row; the seconds that each has had since the last call are theirs to keep.
using Allocate = std::function<void(double now, const std::vector<int64_t>& active, const std::vector<int64_t>& left,
                                    std::vector<double>& shares)>;
// The order in which systems are served in the next round.
using Order = std::function<void(std::vector<int32_t>& systems)>;

RoundResult run_rounds(const RoundJobs& jobs, const RoundOptions& options, const Allocate& allocate, const Order& order);

}  // namespace apportion

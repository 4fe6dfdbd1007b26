// Jobs assigned to places in the queues of slots such that the sum of their completions is least.
#pragma once
#include <cstdint>
#include <vector>

namespace apportion {

// A job in place k, counted from the end of a slot's queue, delays k jobs by its seconds: it costs k * seconds + age.
// Which jobs come to the same places on slots that are alike is decided as SciPy's linear_sum_assignment decides it
// for the whole matrix, a row for each job, a column for each place of each slot, all first places first.
//
// seconds: (N, slots), positive; age: (N,). Returns each job's column.
std::vector<int64_t> least_completions(const double* seconds, const double* age, int64_t count, int64_t slots);

}  // namespace apportion

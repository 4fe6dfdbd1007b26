// What an instrumented OpenCL kernel does, counted while it runs: see measure/counters/instrument.py for its calls.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace apportion {

// Memory that a kernel may touch. `place` is where counting says it lies, so that counts are the same wherever
// the arrays happen to be. A word of four bytes has a counter of its own; accesses elsewhere go into a table.
struct CountedRegion {
    uint64_t begin = 0, end = 0, place = 0;
    std::vector<uint32_t> words;
};

// A branch's outcomes: how often each way, and how often each history of 16 outcomes was seen.
struct CountedBranch {
    uint64_t executed = 0;
    uint32_t history = 0;
    std::unordered_map<uint32_t, uint64_t> patterns;
};

struct CountedLaunch {
    uint32_t dimensions = 1;
    uint64_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1}, offset[3] = {0, 0, 0};
    uint64_t most_instructions = 0;
    uint64_t stack_bytes = 1 << 18;
    bool has_barrier = false;
    std::vector<uint32_t> segment_sizes;  // instructions in each stretch of code that is run as a whole
    std::vector<uint64_t> groups;         // which work-groups to run, by their linear number
    uint32_t branches = 0;
};

struct KernelCounts {
    std::vector<uint64_t> segments;  // how often each was run
    std::vector<CountedBranch> branches;
    std::vector<CountedRegion> regions;
    std::unordered_map<uint64_t, uint64_t> elsewhere;  // place → accesses: bytes, unaligned words, private memory
    std::unordered_map<uint64_t, uint64_t> to_barrier;  // instructions from barrier to barrier → how often
    uint64_t instructions = 0, work_items = 0, barriers = 0, loads = 0, stores = 0;
    uint64_t spaces[3] = {0, 0, 0};  // accesses to global or constant, local, private memory
    // Why it was stopped: empty, "limit", "outside" or "null".
    std::string stopped;
    uint64_t bad_address = 0, bad_item = 0;
    uint32_t bad_bytes = 0;
    bool bad_store = false;
};

constexpr uint64_t private_place = 1ull << 62;
constexpr uint64_t local_places = 1ull << 61;  // regions placed from here on are local memory

KernelCounts count_kernel(uint64_t entry, uint64_t arguments, const CountedLaunch& launch,
                          std::vector<CountedRegion> regions);

// The functions that instrumented code calls, by name.
std::unordered_map<std::string, uint64_t> kernel_symbols();

}  // namespace apportion

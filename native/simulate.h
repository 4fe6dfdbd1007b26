// The control flow of a kernel, followed for a few work-items: program/kernel/block_counts.py translates what decides it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace apportion {

// What a program is made of, by its number: six numbers each, as `Instruction` has them.
std::vector<std::string> control_operations();
// What a program may ask about a work-item, by its number.
std::vector<std::string> control_queries();

constexpr size_t control_instruction_numbers = 6;
constexpr size_t control_query_numbers = 4;

// A program as Python hands it over. Integers are zero-extended to 64 bits, floats are their own bits.
struct ControlProgram {
    const int32_t* code = nullptr;  // operation, width, target, a, b, c
    size_t code_numbers = 0;
    const int32_t* queries = nullptr;  // register, question, dimension, width
    size_t query_numbers = 0;
    const uint64_t* values = nullptr;  // what registers hold when a work-item begins
    const uint8_t* known = nullptr;
    size_t registers = 0;
    const int64_t* weights = nullptr;  // the instructions of each block, whether control needs them or not
    size_t blocks = 0;
};

struct ControlLaunch {
    uint32_t dimensions = 1;
    uint64_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1}, offset[3] = {0, 0, 0};
    const uint64_t* items = nullptr;  // linear numbers, dimension 0 the quickest
    size_t item_count = 0;
    uint64_t budget = 0, item_budget = 0;  // operations in all, and of one work-item
};

struct ControlCounts {
    std::vector<uint64_t> all;      // how often each block ran, in all work-items that began
    std::vector<uint64_t> longest;  // and in the one that executed most instructions
    uint64_t begun = 0, ended = 0;
};

// None where a branch needs what is not known. Throws std::invalid_argument for a program that cannot be run.
std::optional<ControlCounts> simulate_control(const ControlProgram& program, const ControlLaunch& launch);

}  // namespace apportion

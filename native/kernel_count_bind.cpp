// Counting kernels as Python sees it: one function that runs a launch, and the names its code may call.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <tuple>

#include "bindings.h"
#include "kernel_count.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
nb::ndarray<nb::numpy, T> array_of(const std::vector<T>& values) {
    T* data = new T[values.size()];
    std::copy(values.begin(), values.end(), data);
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, {values.size()}, owner);
}

template <class Map>
nb::tuple arrays_of(const Map& map) {
    std::vector<uint64_t> keys, values;
    for (const auto& [key, value] : map) keys.push_back(key), values.push_back(value);
    return nb::make_tuple(array_of(keys), array_of(values));
}

nb::tuple touched(const apportion::KernelCounts& counts) {
    std::vector<uint64_t> places, accesses;
    for (const auto& region : counts.regions)
        for (size_t word = 0; word < region.words.size(); ++word)
            if (region.words[word]) places.push_back(region.place + 4 * word), accesses.push_back(region.words[word]);
    for (const auto& [place, count] : counts.elsewhere) places.push_back(place), accesses.push_back(count);
    return nb::make_tuple(array_of(places), array_of(accesses));
}

nb::dict counted(uint64_t entry, uint64_t arguments, std::array<uint64_t, 3> global, std::array<uint64_t, 3> local,
                 std::array<uint64_t, 3> offset, uint32_t dimensions, std::vector<uint64_t> groups,
                 std::vector<uint32_t> segment_sizes, uint32_t branches, bool has_barrier,
                 const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& regions, uint64_t most_instructions,
                 uint64_t stack_bytes) {
    apportion::CountedLaunch launch;
    launch.dimensions = dimensions;
    std::copy(global.begin(), global.end(), launch.global);
    std::copy(local.begin(), local.end(), launch.local);
    std::copy(offset.begin(), offset.end(), launch.offset);
    launch.most_instructions = most_instructions;
    launch.stack_bytes = stack_bytes;
    launch.has_barrier = has_barrier;
    launch.segment_sizes = std::move(segment_sizes);
    launch.groups = std::move(groups);
    launch.branches = branches;
    std::vector<apportion::CountedRegion> memory;
    for (const auto& [begin, bytes, place] : regions) memory.push_back({begin, begin + bytes, place, {}});
    apportion::KernelCounts counts;
    {
        nb::gil_scoped_release released;
        counts = apportion::count_kernel(entry, arguments, launch, std::move(memory));
    }
    nb::list histories;
    std::vector<uint64_t> executed;
    for (const auto& branch : counts.branches) {
        executed.push_back(branch.executed);
        histories.append(arrays_of(branch.patterns));
    }
    nb::dict found;
    found["segments"] = array_of(counts.segments);
    found["branches"] = array_of(executed);
    found["histories"] = histories;
    found["touched"] = touched(counts);
    found["to_barrier"] = arrays_of(counts.to_barrier);
    found["instructions"] = counts.instructions;
    found["work_items"] = counts.work_items;
    found["barriers"] = counts.barriers;
    found["loads"] = counts.loads;
    found["stores"] = counts.stores;
    found["spaces"] = nb::make_tuple(counts.spaces[0], counts.spaces[1], counts.spaces[2]);
    found["stopped"] = counts.stopped;
    found["bad_address"] = counts.bad_address;
    found["bad_bytes"] = counts.bad_bytes;
    found["bad_item"] = counts.bad_item;
    found["bad_store"] = counts.bad_store;
    return found;
}

}  // namespace

void bind_kernel_count(nb::module_& module) {
    module.def("kernel_symbols", &apportion::kernel_symbols,
               "The functions that instrumented kernels call, and the work-item functions of OpenCL: name → address.");
    module.def("count_kernel", &counted, "entry"_a, "arguments"_a, "global_size"_a, "local_size"_a, "offset"_a,
               "dimensions"_a, "groups"_a, "segment_sizes"_a, "branches"_a, "has_barrier"_a, "regions"_a,
               "most_instructions"_a, "stack_bytes"_a,
               "Run an instrumented kernel over work-groups and count what it does. Only in a process that may be lost.");
}

// The simulator of control flow as Python sees it: one function, and the names of what its programs may say.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "simulate.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using Numbers = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sizes = std::array<uint64_t, 3>;
using Found = std::tuple<std::vector<uint64_t>, std::vector<uint64_t>, uint64_t, uint64_t>;

std::optional<Found> simulated(Numbers<int32_t> code, Numbers<int32_t> queries, Numbers<uint64_t> values,
                               Numbers<uint8_t> known, Numbers<int64_t> weights, uint32_t dimensions,
                               const Sizes& global, const Sizes& local, const Sizes& offset, Numbers<uint64_t> items,
                               uint64_t budget, uint64_t item_budget) {
    if (values.size() != known.size())
        throw std::invalid_argument("A control program says of each register what it holds and whether that is known");
    apportion::ControlProgram program;
    program.code = code.data(), program.code_numbers = code.size();
    program.queries = queries.data(), program.query_numbers = queries.size();
    program.values = values.data(), program.known = known.data(), program.registers = values.size();
    program.weights = weights.data(), program.blocks = weights.size();
    apportion::ControlLaunch launch;
    launch.dimensions = dimensions;
    std::copy(global.begin(), global.end(), launch.global);
    std::copy(local.begin(), local.end(), launch.local);
    std::copy(offset.begin(), offset.end(), launch.offset);
    launch.items = items.data(), launch.item_count = items.size();
    launch.budget = budget, launch.item_budget = item_budget;
    std::optional<apportion::ControlCounts> counts;
    {
        nb::gil_scoped_release released;
        counts = apportion::simulate_control(program, launch);
    }
    if (!counts) return std::nullopt;
    return Found{std::move(counts->all), std::move(counts->longest), counts->begun, counts->ended};
}

}  // namespace

void bind_simulate(nb::module_& module) {
    module.attr("CONTROL_OPERATIONS") = apportion::control_operations();
    module.attr("CONTROL_QUERIES") = apportion::control_queries();
    module.def("simulate_control", &simulated, "code"_a, "queries"_a, "values"_a, "known"_a, "weights"_a,
               "dimensions"_a, "global_size"_a, "local_size"_a, "offset"_a, "items"_a, "budget"_a, "item_budget"_a,
               "How often blocks run in work-items: in all of them, in the longest, how many began and ended; None "
               "where a branch needs what is not known.");
}

// The native extension: program graphs from LLVM IR text, and the analyses over them.
// Each part binds its own functions; this file only gathers them.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <utility>

#include "bindings.h"

namespace nb = nanobind;

namespace {

template <typename T>
using Numbers = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

// Graphs check themselves each time one is made; NumPy's two passes took longer than building a small graph.
template <typename T>
nb::tuple range_of(Numbers<T> numbers) {
    auto [least, most] = std::minmax_element(numbers.data(), numbers.data() + numbers.size());
    return nb::make_tuple(*least, *most);
}

bool never_falls(Numbers<int64_t> numbers) {
    return std::is_sorted(numbers.data(), numbers.data() + numbers.size());
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Program graphs from LLVM IR text, and data-flow analyses, in C++.";
    module.def("range_of", &range_of<int32_t>, nb::arg("numbers"), "The least and the greatest of some numbers, not none.");
    module.def("range_of", &range_of<uint8_t>, nb::arg("numbers"));
    module.def("never_falls", &never_falls, nb::arg("numbers"), "Whether each number is at least the one before it.");
    bind_llvm(module);
    bind_analysis(module);
    bind_hlo(module);
    bind_kernel_count(module);
    bind_process_trace(module);
    bind_schedule(module);
    bind_simulate(module);
}

// The analyses as Python sees them: one object per graph, analysis and mode.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>

#include "analysis.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using apportion::Kind;
using apportion::Mode;

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Edges = nb::ndarray<const int32_t, nb::shape<2, -1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T> zeros(size_t rows, size_t columns, bool flat) {
    T* data = new T[rows * columns]();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    const size_t shape[2] = {rows, columns};
    return nb::ndarray<nb::numpy, T>(data, flat ? 1 : 2, shape, owner);
}

Kind kind_of(const std::string& name) {
    if (name == "reachability") return Kind::reachability;
    if (name == "dominance") return Kind::dominance;
    if (name == "datadep") return Kind::datadep;
    if (name == "liveness") return Kind::liveness;
    if (name == "subexpressions") return Kind::subexpressions;
    throw nb::value_error(("no analysis called " + name).c_str());
}

Mode mode_of(const std::string& name) {
    if (name == "exact") return Mode::exact;
    if (name == "reference") return Mode::reference;
    throw nb::value_error(("no mode called " + name).c_str());
}

// An analysis together with the arrays that it looks at. `run` keeps scratch space: one thread at a time.
struct BoundAnalysis {
    Input<uint8_t> node_type, edge_flow, string_data;
    Input<int32_t> node_text, node_full_text, node_function, edge_position;
    Input<int64_t> string_offsets;
    Edges edges;
    size_t nodes = 0;
    std::unique_ptr<apportion::Analysis> analysis;

    // The arrays' contents are trusted: ProgramGraph has checked them.
    BoundAnalysis(Input<uint8_t> node_type_, Input<int32_t> node_text_, Input<int32_t> node_full_text_,
                  Input<int32_t> node_function_, Input<uint8_t> edge_flow_, Input<int32_t> edge_position_, Edges edges_,
                  Input<uint8_t> string_data_, Input<int64_t> string_offsets_, const std::string& analysis_name,
                  const std::string& mode_name)
        : node_type(node_type_), edge_flow(edge_flow_), string_data(string_data_), node_text(node_text_),
          node_full_text(node_full_text_), node_function(node_function_), edge_position(edge_position_),
          string_offsets(string_offsets_), edges(edges_), nodes(node_type_.shape(0)) {
        const size_t e = edge_flow.shape(0);
        if (node_text.shape(0) != nodes || node_full_text.shape(0) != nodes || node_function.shape(0) != nodes ||
            edge_position.shape(0) != e || edges.shape(1) != e)
            throw nb::value_error("arrays of different lengths");
        apportion::GraphView view;
        view.nodes = int32_t(nodes);
        view.edges = int64_t(e);
        view.node_type = node_type.data();
        view.node_text = node_text.data();
        view.node_full_text = node_full_text.data();
        view.node_function = node_function.data();
        view.edge_flow = edge_flow.data();
        view.edge_position = edge_position.data();
        view.source = edges.data();
        view.target = edges.data() + e;
        view.string_data = string_data.data();
        view.string_offsets = string_offsets.data();
        const Kind kind = kind_of(analysis_name);
        const Mode mode = mode_of(mode_name);
        nb::gil_scoped_release unlocked;
        analysis = apportion::analysis_of(view, kind, mode);
    }

    nb::ndarray<nb::numpy, int32_t> eligible() const {
        auto out = zeros<int32_t>(analysis->eligible.size(), 1, true);
        std::copy(analysis->eligible.begin(), analysis->eligible.end(), out.data());
        return out;
    }

    nb::tuple run(Input<int32_t> roots) {
        const size_t count = roots.shape(0), row_bytes = (nodes + 7) / 8;
        for (size_t i = 0; i < count; ++i)
            if (!std::binary_search(analysis->eligible.begin(), analysis->eligible.end(), roots.data()[i]))
                throw nb::value_error("a root that is not eligible");
        auto steps = zeros<int64_t>(count, 1, true);
        auto active = zeros<int64_t>(count, 1, true);
        auto failed = zeros<uint8_t>(count, 1, true);
        auto bits = zeros<uint8_t>(count, row_bytes, false);
        const apportion::Rows rows{steps.data(), active.data(), failed.data(), bits.data(), row_bytes};
        {
            nb::gil_scoped_release unlocked;
            analysis->run(roots.data(), count, rows);
        }
        return nb::make_tuple(steps, active, failed, bits);
    }
};

}  // namespace

void bind_analysis(nb::module_& module) {
    nb::class_<BoundAnalysis>(module, "Analysis", "One data-flow analysis of one graph.")
        .def(nb::init<Input<uint8_t>, Input<int32_t>, Input<int32_t>, Input<int32_t>, Input<uint8_t>, Input<int32_t>,
                      Edges, Input<uint8_t>, Input<int64_t>, const std::string&, const std::string&>(),
             "node_type"_a, "node_text"_a, "node_full_text"_a, "node_function"_a, "edge_flow"_a, "edge_position"_a,
             "edges"_a, "string_data"_a, "string_offsets"_a, "analysis"_a, "mode"_a)
        .def("eligible", &BoundAnalysis::eligible, "(R,) int32: the roots it can start from, ascending.")
        .def("run", &BoundAnalysis::run, "roots"_a,
             "(steps, active, failed, bits) of these roots; bit v of a row is node v's label, little order.")
        .def_prop_ro("init_error", [](const BoundAnalysis& self) { return self.analysis->init_error; },
                     "Why no root can be answered; empty when they can.")
        .def_prop_ro("failure", [](const BoundAnalysis& self) { return self.analysis->failure(); },
                     "Why a root with `failed` set came to nothing.");
    module.attr("UNCOUNTABLE") = apportion::UNCOUNTABLE;
}

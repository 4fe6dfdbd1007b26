// The graph builder as Python sees it: bytes in, arrays and strings out, the GIL released in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings.h"
#include "llvm_graph.h"
#include "text_cursor.h"

namespace nb = nanobind;
using namespace apportion;

namespace {

// A NumPy array that owns a copy of these numbers: the vector's spare capacity is not kept alive.
template <typename T>
nb::object array_of(const T* values, size_t rows, size_t columns) {
    size_t count = rows * columns;
    auto* copy = new T[count ? count : 1];
    if (count) memcpy(copy, values, count * sizeof(T));
    nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    size_t shape[2] = {rows, columns};
    if (rows == 1) return nb::cast(nb::ndarray<nb::numpy, T>(copy, 1, shape + 1, owner));
    return nb::cast(nb::ndarray<nb::numpy, T>(copy, 2, shape, owner));
}

template <typename T>
nb::object array_of(const std::vector<T>& values) { return array_of(values.data(), 1, values.size()); }

nb::dict numbers(const std::vector<Number>& features) {
    nb::dict found;
    for (const auto& [name, value] : features) found[nb::str(name.c_str(), name.size())] = value;
    return found;
}

nb::object text(const std::string& value) {
    return nb::steal(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "surrogateescape"));
}

nb::dict arrays(const GraphArrays& graph) {
    nb::dict found;
    found["node_type"] = array_of(graph.node_type);
    found["node_text"] = array_of(graph.node_text);
    found["node_full_text"] = array_of(graph.node_full_text);
    found["node_function"] = array_of(graph.node_function);
    found["node_block"] = array_of(graph.node_block);
    found["edge_flow"] = array_of(graph.edge_flow);
    found["edge_position"] = array_of(graph.edge_position);
    std::vector<int32_t> edges(graph.edge_source);
    edges.insert(edges.end(), graph.edge_target.begin(), graph.edge_target.end());
    found["edges"] = array_of(edges.data(), 2, graph.edge_source.size());
    found["string_data"] = array_of(reinterpret_cast<const uint8_t*>(graph.string_data.data()), 1, graph.string_data.size());
    found["string_offsets"] = array_of(graph.string_offsets);
    nb::list functions;
    for (const FunctionInfo& function : graph.functions)
        functions.append(nb::make_tuple(text(function.name), numbers(function.features)));
    found["functions"] = functions;
    nb::dict features = numbers(graph.module_features);
    features["llvm_target_triple"] = text(graph.target_triple);
    features["llvm_data_layout"] = text(graph.data_layout);
    found["module"] = nb::make_tuple(text(graph.module_name), features);
    nb::dict of_nodes;
    for (const auto& [node, feature] : graph.node_features) {
        nb::object key = nb::cast(node);
        if (!of_nodes.contains(key)) of_nodes[key] = nb::dict();
        nb::cast<nb::dict>(of_nodes[key])[nb::str(feature.first.c_str())] = feature.second;
    }
    found["node_features"] = of_nodes;
    found["instructions"] = graph.instructions;
    return found;
}

// (message, line, column) for text that is not IR; a list of names when the wanted function is not there.
nb::object graph_of_text(nb::bytes source, const GraphOptions& options) {
    View view(source.c_str(), source.size());
    GraphArrays graph;
    std::string message;
    size_t offset = 0;
    std::optional<std::vector<std::string>> defined;
    bool failed = false;
    {
        nb::gil_scoped_release released;
        try {
            graph = build_graph(view, options);
        } catch (const ParseError& error) {
            failed = true;
            message = error.what();
            offset = error.offset;
        } catch (const UnknownFunction& unknown) {
            defined = unknown.defined;
        }
    }
    if (defined) {
        nb::list names;
        for (const std::string& name : *defined) names.append(text(name));
        return names;
    }
    if (failed) {
        size_t line = 1, column = 1;
        for (size_t i = 0; i < offset && i < view.size(); ++i) {
            if (view[i] == '\n') { ++line; column = 1; }
            else ++column;
        }
        return nb::make_tuple(text(message), line, column);
    }
    return arrays(graph);
}

}  // namespace

void bind_llvm(nb::module_& module) {
    module.def(
        "graph_of_text",
        [](nb::bytes source, const std::string& root_text, const std::string& module_name, const std::string& only_function,
           bool one_pointer_level, bool unnamed_types_by_address, bool calls_through_everything, bool type_nodes, bool variable_per_definition,
           bool recover_pointees, bool full_text) {
            GraphOptions options{root_text, module_name, only_function, one_pointer_level, unnamed_types_by_address, calls_through_everything,
                                 type_nodes, variable_per_definition, recover_pointees, full_text};
            return graph_of_text(source, options);
        },
        nb::arg("source"), nb::kw_only(), nb::arg("root_text"), nb::arg("module_name"), nb::arg("only_function"),
        nb::arg("one_pointer_level"), nb::arg("unnamed_types_by_address"), nb::arg("calls_through_everything"), nb::arg("type_nodes"),
        nb::arg("variable_per_definition"), nb::arg("recover_pointees"), nb::arg("full_text"),
        "The graph of LLVM IR text as a dict of arrays; a tuple (message, line, column) for a fault in the text; "
        "a list of the functions there are when `only_function` is none of them.");
}

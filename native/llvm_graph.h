// LLVM IR text -> program graph, by the rules of ProGraML 0.3.2 and a few documented departures from them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apportion {

struct GraphOptions {
    std::string root_text = "[external]";
    std::string module_name;          // used when the text has no source_filename
    std::string only_function;        // keep this function and what it refers to; empty: keep all
    bool one_pointer_level = false;   // abbreviate `%struct.x*` but not `%struct.x**` (the 2020 dataset)
    bool unnamed_types_by_address = true;   // `%"type 0x0"` for `%0` inside a type, as the reference prints it
    bool calls_through_everything = false;  // also invoke, callbr, aliases and casts get call edges
    bool type_nodes = false;          // variables are `var`, constants `val`, and types are nodes
    bool variable_per_definition = false;
    bool recover_pointees = true;     // `ptr` becomes what it points to, where its uses say so
    bool full_text = true;
};

using Number = std::pair<std::string, uint64_t>;

struct FunctionInfo {
    std::string name;
    std::vector<Number> features;
};

struct GraphArrays {
    std::vector<uint8_t> node_type;
    std::vector<int32_t> node_text, node_full_text, node_function, node_block;
    std::vector<uint8_t> edge_flow;
    std::vector<int32_t> edge_position, edge_source, edge_target;
    std::string string_data;
    std::vector<int64_t> string_offsets{0};
    std::vector<FunctionInfo> functions;
    std::string module_name, target_triple, data_layout;
    std::vector<Number> module_features;
    std::vector<std::pair<int32_t, Number>> node_features;
    int64_t instructions = 0;
};

// Builds the graph of a module. The text must be followed by a NUL byte.
// Throws ParseError (text_cursor.h) for text that LLVM would not read, and UnknownFunction.
GraphArrays build_graph(std::string_view text, const GraphOptions& options);

struct UnknownFunction {
    std::vector<std::string> defined;
};

}  // namespace apportion

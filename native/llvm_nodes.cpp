// Writing nodes, edges and texts of the graph.
#include <cstdio>
#include <cstdlib>

#include "llvm_module.h"

namespace apportion {

namespace {
// The reference prints the numbered structure %0 inside another type as %"type 0x55d0c0ffee", an address that
// changes from run to run. Its shape is kept, with the structure's number in place of the address.
std::string unnamed_types_marked(const std::string& printed) {
    std::string out;
    for (size_t i = 0; i < printed.size(); ++i) {
        out += printed[i];
        if (printed[i] != '%' || i + 1 >= printed.size() || !is(printed[i + 1], DIGIT)) continue;
        size_t end = i + 1;
        while (end < printed.size() && is(printed[end], IDENTIFIER)) ++end;
        char hexadecimal[24];
        snprintf(hexadecimal, sizeof hexadecimal, "%llx", strtoull(printed.c_str() + i + 1, nullptr, 10));
        out += "\"type 0x" + std::string(hexadecimal) + "\"";
        i = end - 1;
    }
    return out;
}
}  // namespace

int32_t ModuleReader::add_node(NodeType type, int32_t text, int32_t full_text, int32_t function, int32_t block) {
    out.node_type.push_back(type);
    out.node_text.push_back(text);
    out.node_full_text.push_back(full_text);
    out.node_function.push_back(function);
    out.node_block.push_back(block);
    return static_cast<int32_t>(out.node_type.size()) - 1;
}

void ModuleReader::add_edge(Flow flow, int32_t position, int32_t source, int32_t target) {
    out.edge_flow.push_back(flow);
    out.edge_position.push_back(position);
    out.edge_source.push_back(source);
    out.edge_target.push_back(target);
}

int32_t ModuleReader::new_string(View text) {
    out.string_data.append(text);
    out.string_offsets.push_back(static_cast<int64_t>(out.string_data.size()));
    return static_cast<int32_t>(out.string_offsets.size()) - 2;
}

int32_t ModuleReader::text_of(View text) {
    int32_t known = text_ids_.find(text);
    if (known >= 0) return known;
    kept_.emplace_back(text);
    int32_t id = new_string(text);
    text_ids_.insert(kept_.back(), id);
    return id;
}

// Structures are abbreviated: their names say nothing outside their project.
int32_t ModuleReader::text_of_type(TypeId type) {
    if (types[type].text >= 0) return types[type].text;
    int levels = 0;
    TypeId inner = type;
    while (types[inner].kind == Kind::Pointer) { ++levels; inner = types[inner].element; }
    Kind kind = types[inner].kind;
    bool structure = kind == Kind::Struct || kind == Kind::NamedStruct;
    if (options_.one_pointer_level && levels > 1) structure = false;
    int32_t id = structure ? text_of("struct" + std::string(static_cast<size_t>(levels), '*'))
                           : text_of(options_.unnamed_types_by_address ? unnamed_types_marked(types[type].printed)
                                                                       : types[type].printed);
    types[type].text = id;
    return id;
}

int32_t ModuleReader::value_text(TypeId type, NodeType kind) {
    if (options_.type_nodes) return text_of(kind == CONSTANT ? "val" : "var");
    return text_of_type(type);
}

int32_t ModuleReader::variable_full_text(Symbol& symbol, TypeId type) {
    if (!options_.full_text) return text_of("");
    if (symbol.full_text < 0) {
        size_t of_type = static_cast<size_t>(text_of_type(type));
        size_t begin = static_cast<size_t>(out.string_offsets[of_type]), end = static_cast<size_t>(out.string_offsets[of_type + 1]);
        std::string& data = out.string_data;
        data.append(data, begin, end - begin);
        data += " %";
        bool quotes = symbol.name.needs_quotes();
        if (quotes) data += '"';
        // The reference takes what precedes the first " = " of the printed producer, wherever that is.
        size_t cut = symbol.name.quoted ? symbol.name.text.find(" = ") : View::npos;
        data += symbol.name.text.substr(0, cut);
        if (quotes && cut == View::npos) data += '"';
        symbol.full_text = new_string({});
    }
    return symbol.full_text;
}

// -- type nodes: one node for each type, components pointing at what they compose

void ModuleReader::add_type(TypeId type, int32_t node) {
    if (!options_.type_nodes) return;
    structs_being_built_.clear();
    add_edge(TYPE_FLOW, 0, type_node(type), node);
}

int32_t ModuleReader::type_node(TypeId type) {
    auto building = structs_being_built_.find(type);
    if (building != structs_being_built_.end()) return building->second;
    auto found = type_nodes_.find(type);
    if (found != type_nodes_.end()) return found->second;
    int32_t node = fresh_type_node(type);
    type_nodes_.emplace(type, node);
    return node;
}

int32_t ModuleReader::fresh_type_node(TypeId type) {
    const Type& t = types[type];
    bool structure = t.kind == Kind::Struct || t.kind == Kind::NamedStruct;
    View text = structure ? View("struct")
                : t.kind == Kind::Pointer || t.kind == Kind::OpaquePointer ? View("*")
                : t.kind == Kind::Array ? View("[]")
                : t.kind == Kind::Vector ? View("vector")
                                         : View(t.printed);
    int32_t node = add_node(TYPE_NODE, text_of(text), text_of_type(type), 0, 0);
    if (structure) {
        structs_being_built_.emplace(type, node);
        int32_t position = 0;
        for (TypeId member : t.members) {
            // Members are made anew each time, but for structures already met on the way from this value.
            auto building = structs_being_built_.find(member);
            int32_t component = building != structs_being_built_.end() ? building->second : fresh_type_node(member);
            add_edge(TYPE_FLOW, position++, component, node);
        }
    } else if (t.element != NO_TYPE && (t.kind == Kind::Pointer || t.kind == Kind::Array || t.kind == Kind::Vector)) {
        add_edge(TYPE_FLOW, 0, type_node(t.element), node);
    }
    return node;
}

}  // namespace apportion

// The top level of a module: functions, globals, types, metadata; and what joins them at the end.
#include "llvm_module.h"

#include <algorithm>
#include <cstdlib>

namespace apportion {

namespace {

bool starts_with(View text, View prefix) { return text.substr(0, prefix.size()) == prefix; }

bool known_property(View word) {
    static const std::unordered_set<View> KNOWN = {
        "section", "partition", "comdat", "align", "code_model", "no_sanitize_address", "no_sanitize_hwaddress",
        "sanitize_address", "sanitize_memtag", "sanitize_address_dyninit",
    };
    return KNOWN.count(word);
}

}  // namespace

bool memory_intrinsic(View name) {
    return starts_with(name, "llvm.memcpy.") || starts_with(name, "llvm.memmove.") || starts_with(name, "llvm.memset.");
}

GraphArrays build_graph(View text, const GraphOptions& options) { return ModuleReader(text, options).read(); }

ModuleReader::ModuleReader(View text, const GraphOptions& options)
    : text_(text), options_(options), c(text), constants_reader(c, types) {
    opcode_texts_.fill(-1);
    // Guesses from measured IR: too small costs a copy, too large only address space.
    size_t nodes = text.size() / 16, edges = text.size() / 8;
    out.node_type.reserve(nodes);
    for (auto* column : {&out.node_text, &out.node_full_text, &out.node_function, &out.node_block}) column->reserve(nodes);
    out.edge_flow.reserve(edges);
    for (auto* column : {&out.edge_position, &out.edge_source, &out.edge_target}) column->reserve(edges);
    if (options.full_text) out.string_data.reserve(text.size());
}

GraphArrays ModuleReader::read() {
    out.module_name = options_.module_name;
    add_node(INSTRUCTION, text_of(options_.root_text), -1, 0, 0);
    if (!options_.only_function.empty()) select_functions();
    while (c.skip_space(), c.p < c.end) top_level();
    finish();
    return std::move(out);
}

// -- one function and what it refers to

void ModuleReader::select_functions() {
    struct Piece { View body; bool function; };
    std::unordered_map<View, Piece> pieces;
    std::vector<std::string> defined;
    Cursor saved = c;
    while (c.skip_space(), c.p < c.end) {
        const char* start = c.p;
        View word = c.peek_word();
        if (word == "define") {
            while (c.p < c.end && *c.p != '@') { if (*c.p == '"') c.string(); else ++c.p; }
            Name name = name_after_sigil(c, '@');
            while (c.p < c.end && *c.p != '{') { if (*c.p == '(' ) c.balanced(); else if (*c.p == '"') c.string(); else ++c.p; }
            skip_function_body();
            pieces[name.text] = {{start, static_cast<size_t>(c.p - start)}, true};
            defined.emplace_back(name.text);
        } else {
            if (*c.p == '@') {
                Name name = name_after_sigil(c, '@');
                c.skip_line();
                pieces[name.text] = {{start, static_cast<size_t>(c.p - start)}, false};
            } else {
                c.skip_line();
            }
        }
    }
    c = saved;
    auto wanted = pieces.find(options_.only_function);
    if (wanted == pieces.end() || !wanted->second.function) throw UnknownFunction{defined};
    selecting_ = true;
    std::vector<View> queue{wanted->first};
    selected_.insert(wanted->first);
    while (!queue.empty()) {
        auto piece = pieces.find(queue.back());
        queue.pop_back();
        if (piece == pieces.end()) continue;  // a declaration: it refers to nothing
        Cursor body(piece->second.body);
        while (body.p < body.end) {
            if (*body.p == '"') { body.string(); continue; }
            if (*body.p == ';') { body.skip_line(); continue; }
            if (*body.p != '@') { ++body.p; continue; }
            Name name = name_after_sigil(body, '@');
            if (selected_.insert(name.text).second) queue.push_back(name.text);
        }
    }
}

void ModuleReader::skip_function_body() {
    c.need('{');
    int depth = 1;
    while (c.p < c.end) {
        switch (*c.p) {
            case '{': ++depth; break;
            case '}': if (--depth == 0) { ++c.p; return; } break;
            case '"': c.string(); continue;
            case ';': c.skip_line(); continue;
            default: break;
        }
        ++c.p;
    }
    c.fail("the file ends inside a function");
}

// -- top level

void ModuleReader::top_level() {
    switch (*c.p) {
        case '@': case '%': case '$': case '!': case '^': assignment(); return;
        default: break;
    }
    const char* start = c.p;
    View word = c.word();
    if (word == "define") { function_header(true); return; }
    if (word == "declare") { function_header(false); return; }
    if (word == "source_filename") { c.need('='); out.module_name = std::string(c.string()); return; }
    if (word == "target") {
        View what = c.word();
        if (what != "triple" && what != "datalayout") c.fail_at(start, "expected 'target triple' or 'target datalayout'");
        c.need('=');
        (what == "triple" ? out.target_triple : out.data_layout) = std::string(c.string());
        return;
    }
    if (word == "module") { c.need_word("asm"); c.string(); return; }
    if (word == "attributes") {
        if (!c.eat('#')) c.fail_here("expected an attribute group number");
        c.number();
        c.need('=');
        if (!c.at('{')) c.fail_here("expected '{'");
        c.balanced();
        return;
    }
    if (word == "deplibs") { c.need('='); c.skip_space(); c.balanced(); return; }
    if (word == "uselistorder" || word == "uselistorder_bb") { c.skip_line(); return; }
    c.p = start;
    c.fail_here("expected a top-level entity");
}

void ModuleReader::assignment() {
    const char* start = c.p;
    switch (*c.p) {
        case '!': metadata_definition(); return;
        case '@': {
            Name name = name_after_sigil(c, '@');
            c.need('=');
            global_definition(name, start);
            return;
        }
        case '%': {
            Name name = name_after_sigil(c, '%');
            c.need('=');
            c.need_word("type");
            types.define(name, c);
            return;
        }
        case '$': {
            name_after_sigil(c, '$');
            c.need('=');
            c.need_word("comdat");
            if (c.word().empty()) c.fail_here("expected a comdat type");
            return;
        }
        default:  // a module summary: '^0 = module: (…)'
            ++c.p;
            c.number();
            c.need('=');
            if (c.word().empty()) c.fail_here("expected a summary entry");
            if (c.eat(':')) {
                c.skip_space();
                if (*c.p == '(') c.balanced();
                else c.word();
            }
            return;
    }
}

void ModuleReader::global_definition(const Name& name, const char* start) {
    int32_t index = global_of(name, start);
    if (globals_[static_cast<size_t>(index)].role != Global::Role::Unknown)
        c.fail_at(start, "redefinition of global '" + name.printed('@') + "'");
    bool external = false, alias = false;
    for (;;) {
        c.skip_space();
        if (*c.p == '"') { c.string(); continue; }
        View word = c.peek_word();
        c.word();
        if (word.empty()) c.fail_here("expected 'global', 'constant' or 'alias'");
        if (*c.p == '(') { c.balanced(); continue; }
        external |= word == "external" || word == "extern_weak";
        if (word == "global" || word == "constant") break;
        if (word == "alias" || word == "ifunc") { alias = true; break; }
    }
    Global& global = globals_[static_cast<size_t>(index)];
    if (alias) {
        while (!TypeTable::starts(c)) {  // LLVM 3.x: '@a = alias weak i32* @b'; the last name is what it stands for
            if (*c.p == '@' || ConstantReader::is_value_word(c.peek_word())) break;
            if (c.word().empty()) c.fail_here("expected a type");
        }
        if (TypeTable::starts(c)) global.value_type = types.parse(c);
        c.eat(',');
        if (TypeTable::starts(c)) types.parse(c);
        const char* aliasee = (c.skip_space(), c.p);
        constants_reader.skip();
        const char* after = c.p;
        for (const char* q = aliasee; q < after; ++q) {
            if (*q != '@') continue;
            Cursor reference(View(q, static_cast<size_t>(after - q)));
            Name target = name_after_sigil(reference, '@');
            int32_t found = global_of(target, q);  // may move globals_
            globals_[static_cast<size_t>(index)].aliasee = found;
            break;
        }
    } else {
        global.value_type = types.parse(c);
        if (!external) constants_reader.read(globals_[static_cast<size_t>(index)].value_type);
    }
    const char* end = c.p;
    for (;;) {  // ', section "x"', ', align 4', ', comdat', ', !dbg !4', ', no_sanitize_address', …
        c.skip_space();
        if (*c.p == '#' ) { ++c.p; c.number(); end = c.p; continue; }
        if (*c.p != ',') break;
        ++c.p;
        c.skip_space();
        if (*c.p == '!') { attachment(); end = c.p; continue; }
        View word = c.word();
        if (!known_property(word)) c.fail_at(c.p - word.size(), "unknown property of a global: '" + std::string(word) + "'");
        c.skip_blanks();
        if (*c.p == '"') c.string();
        else if (*c.p == '(') c.balanced();
        else if (is(*c.p, DIGIT)) c.number();
        else if (*c.p == '$') name_after_sigil(c, '$');
        end = c.p;
        while (end > start && (end[-1] == ' ' || end[-1] == '\t')) --end;
    }
    c.p = end;
    Global& defined = globals_[static_cast<size_t>(index)];
    defined.role = alias ? Global::Role::Alias : Global::Role::Variable;
    defined.definition = {start, static_cast<size_t>(end - start)};
}

void ModuleReader::metadata_definition() {
    ++c.p;
    View word = c.word();
    if (word.empty()) c.fail_here("expected the name or number of metadata");
    for (char d : word) if (is(word[0], DIGIT) && !is(d, DIGIT)) c.fail_at(word.data(), "'!" + std::string(word) + "' is no metadata number");
    if (is(word[0], DIGIT) && word.size() > 18) c.fail_at(word.data(), "this number is too large");
    c.need('=');
    const char* start = (c.skip_space(), c.p);
    c.eat_word("distinct");
    skip_metadata();
    View body{start, static_cast<size_t>(c.p - start)};
    if (!word.empty() && is(word[0], DIGIT)) {
        Cursor digits(word);
        if (!metadata_.emplace(digits.number(), body).second) c.fail_at(start, "metadata !" + std::string(word) + " is defined twice");
    } else if (word == "llvm.module.flags") module_flags_ = body;
}

// Past one metadata value: '!5', '!"text"', '!{…}', '!DILocation(…)', 'metadata !{…}', or a typed constant.
void ModuleReader::skip_metadata() {
    c.skip_space();
    if (*c.p == '!') {
        ++c.p;
        if (*c.p == '"') { c.string(); return; }
        if (*c.p == '{') { c.balanced(); return; }
        if (c.word().empty()) c.fail_here("expected metadata");
        if (*c.p == '(') c.balanced();
        return;
    }
    if (c.peek_word() == "metadata") { c.word(); skip_metadata(); return; }
    if (c.peek_word() == "null") { c.word(); return; }
    if (c.peek_word().substr(0, 2) == "DI") { c.word(); if (*c.p == '(') c.balanced(); return; }
    types.parse(c);
    c.skip_space();
    if (*c.p == '%') name_after_sigil(c, '%');
    else constants_reader.skip();
}

int32_t ModuleReader::global_of(const Name& name, const char* where) {
    View key = name.text;
    if (name.quoted && !name.text.empty() && is(name.text[0], DIGIT)) {
        kept_.push_back("\"" + std::string(name.text) + "\"");  // @"0" is not @0
        key = kept_.back();
    }
    auto [number, fresh] = global_ids_.insert(key, static_cast<int32_t>(globals_.size()));
    if (fresh) {
        globals_.emplace_back();
        globals_.back().name = name;
        globals_.back().first_use = where;
    }
    return number;
}

// -- functions

void ModuleReader::function_header(bool definition) {
    for (;;) {  // linkage, visibility, calling convention, attributes of the result; then the result's type
        c.skip_space();
        if (*c.p == '"') { c.string(); if (*c.p == '=') { ++c.p; c.string(); } continue; }
        if (TypeTable::starts(c)) break;
        if (*c.p == '!' && !definition) { attachment(); continue; }
        if (c.word().empty()) c.fail_here("expected the type of a function's result");
        if (*c.p == '(') c.balanced();
    }
    TypeId result = types.parse(c);
    Kind result_kind = types[result].kind;
    if (result_kind == Kind::Label || result_kind == Kind::Metadata || result_kind == Kind::Function)
        c.fail("a function's result cannot have type '" + types[result].printed + "'");
    const char* where = (c.skip_space(), c.p);
    Name name = name_after_sigil(c, '@');
    int32_t index = global_of(name, where);
    if (globals_[static_cast<size_t>(index)].role != Global::Role::Unknown)
        c.fail_at(where, "redefinition of '" + name.printed('@') + "'");
    bool keep = !selecting_ || selected_.count(name.text);

    symbols_.clear();
    named_.clear();
    numbered_.clear();
    slot_ = 0;
    arguments_.clear();
    std::vector<TypeId> parameters;
    bool variadic = false;
    c.need('(');
    if (!c.at(')')) do {
        if (c.at('.')) { c.need_word("..."); variadic = true; break; }
        TypeId type = types.parse(c);
        Kind kind = types[type].kind;
        if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Function)
            c.fail("a parameter cannot have type '" + types[type].printed + "'");
        parameters.push_back(type);
        parameter_attributes();
        const char* at = c.p;
        Name parameter = *c.p == '%' ? name_after_sigil(c, '%') : next_slot();
        arguments_.push_back(define(parameter, Symbol::Role::Argument, type, at));
    } while (c.eat(','));
    c.need(')');

    bool late = !definition && parameters.size() == 5 && memory_intrinsic(name.text);
    Global& global = globals_[static_cast<size_t>(index)];
    global.role = Global::Role::Function;
    global.value_type = types.function(result, parameters, variadic);
    function_result_ = result;
    if (keep && late) late_declarations_.push_back(index);
    else if (keep) {
        global.function = static_cast<int32_t>(out.functions.size());
        out.functions.push_back({std::string(name.text), {}});
        ends_.emplace_back();
    }
    int32_t number = global.function;
    skip_header_rest(definition, number);
    if (definition) {
        if (!keep) { skip_function_body(); return; }
        function_ = number;
        function_body(number);
    } else if (keep && !late) {
        int32_t node = add_node(INSTRUCTION, text_of("; undefined function"), text_of(""), number, 0);
        ends_[static_cast<size_t>(number)] = {node, {node}};
    }
}

void ModuleReader::skip_header_rest(bool definition, int32_t function) {
    for (;;) {
        if (definition) c.skip_space();
        else c.skip_blanks();
        if (definition && *c.p == '{') return;
        if (!definition && (c.p >= c.end || *c.p == '\n' || *c.p == '\r' || *c.p == ';')) return;
        if (*c.p == '#') { ++c.p; c.number(); continue; }
        if (*c.p == '"') { c.string(); if (*c.p == '=') { ++c.p; c.string(); } continue; }
        if (*c.p == '!') {
            const char* at = c.p + 1;
            attachment();
            if (strncmp(at, "prof ", 5) == 0) {
                Cursor number(View(at + 5, static_cast<size_t>(c.p - at - 5)));
                number.skip_space();
                if (function >= 0 && *number.p == '!' && is(number.p[1], DIGIT)) {
                    ++number.p;
                    entry_counts_.emplace_back(function, number.number());
                }
            }
            continue;
        }
        if (*c.p == '(') { c.balanced(); continue; }
        View word = c.word();
        if (word.empty()) c.fail_here(definition ? "expected '{'" : "expected an attribute of the function");
        if (word == "personality" || word == "prefix" || word == "prologue") {
            constants_reader.read(types.parse(c));
        } else if (word == "section" || word == "partition" || word == "gc") {
            c.string();
        } else if (*c.p == '=') {  // 'align=8' inside attribute groups of old versions
            ++c.p;
            c.word();
        }
        if (!definition && (word == "define" || word == "declare")) c.fail_at(c.p - word.size(), "expected a new line");
    }
}

// -- the end: what joins functions, and constants

void ModuleReader::declare_late(int32_t index) {
    Global& global = globals_[static_cast<size_t>(index)];
    global.role = Global::Role::Function;
    global.function = static_cast<int32_t>(out.functions.size());
    out.functions.push_back({std::string(global.name.text), {}});
    int32_t node = add_node(INSTRUCTION, text_of("; undefined function"), text_of(""), global.function, 0);
    ends_.push_back({node, {node}});
}

void ModuleReader::check_references() {
    types.check_all_defined(c);
    for (const GlobalReference& reference : constants_reader.references) global_of(reference.name, reference.where);
    for (auto [number, where] : metadata_uses_)
        if (!metadata_.count(number)) c.fail_at(where, "use of undefined metadata '!" + std::to_string(number) + "'");
    for (size_t i = 0; i < globals_.size(); ++i) {
        if (globals_[i].role != Global::Role::Unknown) continue;
        // LLVM 21 and newer declare intrinsics by themselves.
        if (starts_with(globals_[i].name.text, "llvm.")) late_declarations_.push_back(static_cast<int32_t>(i));
        else c.fail_at(globals_[i].first_use, "use of undefined value '" + globals_[i].name.printed('@') + "'");
    }
}

namespace { constexpr size_t MAX_RETURN_EDGES = size_t(1) << 24; }

void ModuleReader::finish() {
    check_references();
    for (int32_t index : late_declarations_) declare_late(index);
    add_calls();
    add_constants();
    profile();
}

void ModuleReader::add_calls() {
    size_t returns = 0;
    for (const FunctionEnds& function : ends_) {
        if (function.entry < 0) continue;
        add_edge(CALL, 0, 0, function.entry);
        for (int32_t exit : function.exits) add_edge(CALL, 0, exit, 0);
    }
    for (auto [node, index] : calls_) {
        size_t hops = 0;
        while (options_.calls_through_everything && globals_[static_cast<size_t>(index)].role == Global::Role::Alias &&
               globals_[static_cast<size_t>(index)].aliasee >= 0 && ++hops <= globals_.size())
            index = globals_[static_cast<size_t>(index)].aliasee;
        const Global& callee = globals_[static_cast<size_t>(index)];
        if (callee.role != Global::Role::Function || callee.function < 0) continue;
        const FunctionEnds& function = ends_[static_cast<size_t>(callee.function)];
        add_edge(CALL, 0, node, function.entry);
        // Every exit returns to every call: few lines of text can ask for more edges than there is memory.
        if ((returns += function.exits.size()) > MAX_RETURN_EDGES)
            c.fail("functions with many returns are called too often: more than 16777216 edges");
        for (int32_t exit : function.exits) add_edge(CALL, 0, exit, node);
    }
}

void ModuleReader::add_constants() {
    std::vector<int32_t> nodes(constants_.size(), -1);
    std::vector<char> used(constants_.size());  // an operand that an upgrade removed leaves its constant unused
    for (const Use& use : constant_uses_) used[static_cast<size_t>(use.value)] = 1;
    for (size_t i = 0; i < constants_.size(); ++i) {
        if (!used[i]) continue;
        Constant& constant = constants_[i];
        const Global* global = constant.global >= 0 ? &globals_[static_cast<size_t>(constant.global)] : nullptr;
        if (global && global->role == Global::Role::Function) continue;  // functions as values are no nodes
        TypeId type = constant.type;
        TypeId shown = type;
        if (options_.recover_pointees && global && types[type].kind == Kind::OpaquePointer && global->value_type != NO_TYPE) {
            Kind kind = types[global->value_type].kind;
            if (kind != Kind::Void && kind != Kind::Label && kind != Kind::OpaquePointer)
                shown = types.pointer_to(global->value_type, types[type].count);
        }
        int32_t full = -1;
        if (!options_.full_text) full = text_of("");
        else if (!global) full = new_string(constant.text);
        else if (global->role == Global::Role::Alias) full = new_string(std::string(global->definition) + "\n");
        else full = new_string(global->definition);
        nodes[i] = add_node(CONSTANT, value_text(shown, CONSTANT), full, 0, blocks_);
        add_type(type, nodes[i]);
    }
    for (const Use& use : constant_uses_)
        if (nodes[static_cast<size_t>(use.value)] >= 0) add_edge(DATA, use.position, nodes[static_cast<size_t>(use.value)], use.instruction);
}

// -- profile metadata

View ModuleReader::metadata(uint64_t number) const {
    auto found = metadata_.find(number);
    return found == metadata_.end() ? View() : found->second;
}

namespace {

// The integers of '!{!"name", i32 10, i64 990}', when its first element is that name.
bool numbers_after(View body, View name, std::vector<uint64_t>& numbers) {
    std::string quoted = "!\"" + std::string(name) + "\"";
    size_t place = body.find(quoted);
    if (place == View::npos) return false;
    View rest = body.substr(place + quoted.size());
    for (size_t i = 0; i < rest.size(); ++i) {
        if (rest[i] != ' ' || i + 1 >= rest.size() || !is(rest[i + 1], DIGIT)) continue;
        numbers.push_back(strtoull(std::string(rest.substr(i + 1, 24)).c_str(), nullptr, 10));
    }
    return true;
}

}  // namespace

void ModuleReader::profile() {
    for (auto [node, number] : profiles_) {
        std::vector<uint64_t> weights;
        if (!numbers_after(metadata(number), "branch_weights", weights)) continue;
        uint64_t total = 0;
        for (uint64_t w : weights) total += w;
        if (weights.size() == 2) {
            out.node_features.push_back({node, {"llvm_profile_true_weight", weights[0]}});
            out.node_features.push_back({node, {"llvm_profile_false_weight", weights[1]}});
        }
        out.node_features.push_back({node, {"llvm_profile_total_weight", total}});
    }
    for (auto [function, number] : entry_counts_) {
        std::vector<uint64_t> counts;
        if (function >= 0 && numbers_after(metadata(number), "function_entry_count", counts) && !counts.empty())
            out.functions[static_cast<size_t>(function)].features.push_back({"llvm_profile_entry_count", counts[0]});
    }
    // The module flag '!{i32 1, !"ProfileSummary", !N}' names a list of '!{!"TotalCount", i64 7}' pairs.
    auto numbers_in = [](View list) {
        std::vector<uint64_t> found;
        for (size_t i = 0; i + 1 < list.size(); ++i)
            if (list[i] == '!' && is(list[i + 1], DIGIT)) found.push_back(strtoull(std::string(list.substr(i + 1, 20)).c_str(), nullptr, 10));
        return found;
    };
    static constexpr std::pair<View, View> SUMMARY[] = {
        {"NumFunctions", "llvm_profile_num_functions"}, {"MaxFunctionCount", "llvm_profile_max_function_count"},
        {"NumCounts", "llvm_profile_num_counts"}, {"TotalCount", "llvm_profile_total_count"},
        {"MaxCount", "llvm_profile_max_count"}, {"MaxInternalCount", "llvm_profile_max_internal_count"},
    };
    for (uint64_t flag : numbers_in(module_flags_)) {
        View body = metadata(flag);
        if (body.find("!\"ProfileSummary\"") == View::npos) continue;
        for (uint64_t list : numbers_in(body))
            for (uint64_t entry : numbers_in(metadata(list)))
                for (const auto& [name, feature] : SUMMARY) {
                    std::vector<uint64_t> value;
                    if (numbers_after(metadata(entry), name, value) && !value.empty())
                        out.module_features.push_back({std::string(feature), value[0]});
                }
    }
}

}  // namespace apportion

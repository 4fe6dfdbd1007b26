// One function: its blocks, its names, and the nodes and edges that it becomes.
#include "llvm_module.h"

namespace apportion {

namespace {
constexpr uint64_t MAX_NUMBERED = 1ull << 31;
}

// -- names

Name ModuleReader::next_slot() {
    kept_.push_back(std::to_string(slot_));
    return {kept_.back(), false};
}

int32_t ModuleReader::symbol_of(const Name& name, const char* where) {
    int32_t fresh = static_cast<int32_t>(symbols_.size());
    if (name.numeric()) {
        uint64_t number = 0;
        for (char d : name.text) {
            number = number * 10 + static_cast<uint64_t>(d - '0');
            if (number >= MAX_NUMBERED) c.fail_at(where, "the number of this value is too large");
        }
        // A number far beyond the text's length cannot be defined in it, and must not cost memory.
        if (number > text_.size()) c.fail_at(where, "use of undefined value '" + name.printed('%') + "'");
        if (numbered_.size() <= number) numbered_.resize(std::max<size_t>(number + 1, numbered_.size() * 2), -1);
        if (numbered_[number] >= 0) return numbered_[number];
        numbered_[number] = fresh;
    } else {
        auto [number, added] = named_.insert(name.text, fresh);
        if (!added) return number;
    }
    symbols_.emplace_back();
    symbols_.back().name = name;
    symbols_.back().first_use = where;
    return fresh;
}

int32_t ModuleReader::define(const Name& name, Symbol::Role role, TypeId type, const char* where) {
    if (name.numeric()) {
        uint64_t number = 0;
        for (char d : name.text) number = number > MAX_NUMBERED ? number : number * 10 + static_cast<uint64_t>(d - '0');
        // LLVM up to 18 wants exactly the next number, newer ones accept gaps; going back is always wrong.
        if (number < slot_)
            c.fail_at(where, "'" + name.printed('%') + "' should be numbered '%" + std::to_string(slot_) + "' or more");
        slot_ = number + 1;
    }
    int32_t index = symbol_of(name, where);
    Symbol& symbol = symbols_[static_cast<size_t>(index)];
    if (symbol.defined()) c.fail_at(where, "multiple definition of '" + name.printed('%') + "'");
    if (role != Symbol::Role::Block && symbol.role == Symbol::Role::BlockToCome) c.fail_at(where, "'" + name.printed('%') + "' is not a basic block");
    if (role == Symbol::Role::Block && symbol.type != NO_TYPE) c.fail_at(where, "'" + name.printed('%') + "' is a basic block, not a value");
    if (symbol.type != NO_TYPE && type != NO_TYPE && symbol.type != type)
        c.fail_at(symbol.first_use, "'" + name.printed('%') + "' defined with type '" + types[type].printed +
                                        "' but expected '" + types[symbol.type].printed + "'");
    symbol.role = role;
    if (type != NO_TYPE) symbol.type = type;
    return index;
}

// -- blocks

void ModuleReader::start_block(int32_t symbol) {
    symbols_[static_cast<size_t>(symbol)].node = static_cast<int32_t>(block_list_.size());
    block_list_.push_back({symbol});
    open_ = true;
}

// 'name:' opens a block; anything else is left for the instruction.
bool ModuleReader::block_label() {
    const char* start = c.p;
    Name name;
    if (*c.p == '"') {
        const char* p = c.p + 1;
        while (p < c.end && *p != '"' && *p != '\n') ++p;
        if (*p != '"' || p[1] != ':') return false;
        name = {{start + 1, static_cast<size_t>(p - start - 1)}, true};
        c.p = p + 1;
    } else {
        const char* p = c.p;
        while (is(*p, IDENTIFIER)) ++p;
        if (p == start || *p != ':') return false;
        name = {{start, static_cast<size_t>(p - start)}, false};
        c.p = p;
    }
    ++c.p;
    if (open_) c.fail_at(start, "the block before this label does not end in a terminator");
    start_block(define(name, Symbol::Role::Block, NO_TYPE, start));
    return true;
}

void ModuleReader::function_body(int32_t function) {
    block_list_.clear();
    successors_.clear();
    argument_uses_.clear();
    definition_uses_.clear();
    producers_.clear();
    pending_.clear();
    kept_pointers_.clear();
    open_ = false;
    c.need('{');
    for (;;) {
        c.skip_space();
        if (c.p >= c.end) c.fail("the file ends inside a function");
        if (*c.p == '}') break;
        if (*c.p == '#') {  // a debug record is no instruction
            if (strncmp(c.p, "#dbg_", 5) != 0) c.fail_here("expected an instruction");
            c.p += 5;
            c.word();
            if (*c.p != '(') c.fail_here("expected '('");
            c.balanced();
            continue;
        }
        if (block_label()) continue;
        const char* start = c.p;
        if (!open_) {
            if (*c.p == 'u' && c.peek_word().substr(0, 12) == "uselistorder") { c.skip_line(); continue; }
            Name name = next_slot();
            start_block(define(name, Symbol::Role::Block, NO_TYPE, start));
        }
        now.clear();
        Name name;
        bool named = *c.p == '%';
        if (named) {
            name = name_after_sigil(c, '%');
            c.need('=');
        }
        instruction();
        if (named && !now.has_result) c.fail_at(start, "'" + std::string(now.opcode) + "' gives no result that could be named");
        if (now.has_result && !named) name = next_slot();
        add_instruction(start);
        if (now.has_result) {
            int32_t index = define(name, Symbol::Role::Value, now.result, start);
            Symbol& symbol = symbols_[static_cast<size_t>(index)];
            symbol.node = static_cast<int32_t>(block_list_.back().last);
            symbol.pointee = symbol.pointee == NO_TYPE ? now.result_pointee : symbol.pointee;
            if (now.loaded_from >= 0) kept_pointers_.emplace_back(now.loaded_from, index);
        }
        if (now.stored_symbol >= 0 && now.stored_to >= 0) kept_pointers_.emplace_back(now.stored_to, now.stored_symbol);
    }
    if (open_) c.fail("the last block of the function does not end in a terminator");
    if (block_list_.empty()) c.fail("a function must have at least one block");
    ++c.p;
    finish_function(function);
}

// -- nodes and edges

void ModuleReader::add_instruction(const char* start) {
    Block& block = block_list_.back();
    ++out.instructions;
    int32_t full = options_.full_text ? new_string({start, static_cast<size_t>(instruction_end_ - start)}) : text_of("");
    int32_t node = add_node(INSTRUCTION, now.opcode_text, full, function_, blocks_);
    if (block.last >= 0) add_edge(CONTROL, 0, block.last, node);
    else block.first = node;
    block.last = node;
    for (size_t i = 0; i < now.operands.size(); ++i) add_operand(now.operands[i], node, static_cast<int32_t>(i));
    if (now.callee >= 0 && (now.call || options_.calls_through_everything)) calls_.emplace_back(node, now.callee);
    else if (now.callee_behind >= 0 && options_.calls_through_everything) calls_.emplace_back(node, now.callee_behind);
    if (now.terminator) {
        block.successors_begin = static_cast<uint32_t>(successors_.size());
        successors_.insert(successors_.end(), now.successors.begin(), now.successors.end());
        block.successors_end = static_cast<uint32_t>(successors_.size());
        open_ = false;
        ++blocks_;
    }
}

void ModuleReader::add_operand(const Operand& operand, int32_t node, int32_t position) {
    if (operand.role == Operand::Role::None) return;
    if (operand.role == Operand::Role::Constant) {
        constant_uses_.push_back({operand.index, node, position});
        return;
    }
    Symbol& symbol = symbols_[static_cast<size_t>(operand.index)];
    bool recoverable = options_.recover_pointees && types[operand.type].kind == Kind::OpaquePointer;
    if (recoverable && operand.pointee != NO_TYPE && symbol.pointee == NO_TYPE) symbol.pointee = operand.pointee;
    if (symbol.role == Symbol::Role::Argument) {
        argument_uses_.push_back({operand.index, node, position});
        return;
    }
    if (options_.variable_per_definition) {
        definition_uses_.push_back({operand.index, node, position});
        return;
    }
    int32_t full = variable_full_text(symbol, operand.type);
    int32_t variable = add_node(VARIABLE, value_text(operand.type, VARIABLE), full, function_, blocks_);
    add_type(operand.type, variable);
    add_edge(DATA, position, variable, node);
    producers_.emplace_back(operand.index, variable);
    if (recoverable) pending_.push_back({variable, operand.index, operand.type, operand.pointee});
}

void ModuleReader::finish_function(int32_t function) {
    for (const Symbol& symbol : symbols_)
        if (!symbol.defined())
            c.fail_at(symbol.first_use, "use of undefined value '" + symbol.name.printed('%') + "'");
    if (options_.recover_pointees && types.saw_opaque_pointer) resolve_pointees();

    // Arguments that are used, in their order; their block is one past the function's last.
    std::vector<int32_t> node_of(symbols_.size(), -1);
    for (const Use& use : argument_uses_) node_of[static_cast<size_t>(use.value)] = -2;
    for (int32_t index : arguments_) {
        if (node_of[static_cast<size_t>(index)] != -2) continue;
        Symbol& symbol = symbols_[static_cast<size_t>(index)];
        int32_t full = options_.full_text ? new_string(types[symbol.type].printed + " " + symbol.name.printed('%')) : text_of("");
        TypeId shown = recovered(symbol.type, symbol.pointee, symbol.content);
        node_of[static_cast<size_t>(index)] = add_node(VARIABLE, value_text(shown, VARIABLE), full, function, blocks_);
        add_type(symbol.type, node_of[static_cast<size_t>(index)]);
    }
    for (const Use& use : argument_uses_) add_edge(DATA, use.position, node_of[static_cast<size_t>(use.value)], use.instruction);
    for (auto [symbol, variable] : producers_) add_edge(DATA, 0, symbols_[static_cast<size_t>(symbol)].node, variable);
    if (options_.variable_per_definition) add_variables_per_definition();

    // Branches and exits count only where control can come from the entry.
    std::vector<char> reachable(block_list_.size());
    std::vector<int32_t> queue{0};
    reachable[0] = 1;
    for (size_t head = 0; head < queue.size(); ++head) {
        const Block& block = block_list_[static_cast<size_t>(queue[head])];
        for (uint32_t k = block.successors_begin; k < block.successors_end; ++k) {
            const Symbol& symbol = symbols_[static_cast<size_t>(successors_[k])];
            if (reachable[static_cast<size_t>(symbol.node)]) continue;
            reachable[static_cast<size_t>(symbol.node)] = 1;
            queue.push_back(symbol.node);
        }
    }
    FunctionEnds& ends = ends_[static_cast<size_t>(function)];
    ends.entry = block_list_[0].first;
    for (size_t i = 0; i < block_list_.size(); ++i) {
        const Block& block = block_list_[i];
        if (!reachable[i]) continue;
        for (uint32_t k = block.successors_begin; k < block.successors_end; ++k) {
            int32_t next = symbols_[static_cast<size_t>(successors_[k])].node;
            add_edge(CONTROL, static_cast<int32_t>(k - block.successors_begin), block.last, block_list_[static_cast<size_t>(next)].first);
        }
        if (block.successors_begin == block.successors_end) ends.exits.push_back(block.last);
    }
}

void ModuleReader::add_variables_per_definition() {
    std::vector<int32_t> node_of(symbols_.size(), -1);
    for (const Use& use : definition_uses_) {
        int32_t& variable = node_of[static_cast<size_t>(use.value)];
        Symbol& symbol = symbols_[static_cast<size_t>(use.value)];
        if (variable < 0) {
            TypeId type = symbol.type;
            int32_t full = variable_full_text(symbol, type);
            TypeId shown = recovered(type, symbol.pointee, symbol.content);
            int32_t block = out.node_block[static_cast<size_t>(symbol.node)];
            variable = add_node(VARIABLE, value_text(shown, VARIABLE), full, function_, block);
            add_type(type, variable);
            add_edge(DATA, 0, symbol.node, variable);
        }
        add_edge(DATA, use.position, variable, use.instruction);
    }
}

// -- what opaque pointers point to, as their uses tell

TypeId ModuleReader::recovered(TypeId type, TypeId pointee, TypeId content) {
    if (!options_.recover_pointees || pointee == NO_TYPE || types[type].kind != Kind::OpaquePointer) return type;
    Kind kind = types[pointee].kind;
    if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Metadata || kind == Kind::Token) return type;
    if (kind == Kind::OpaquePointer) {
        // A place that holds a pointer: bytes, where nothing says what that one points to.
        TypeId inner = content == NO_TYPE || types[content].kind == Kind::OpaquePointer ? types.integer(8) : content;
        pointee = types.pointer_to(inner, types[pointee].count);
    }
    return types.pointer_to(pointee, types[type].count);
}

void ModuleReader::resolve_pointees() {
    auto at = [&](int32_t index) -> Symbol& { return symbols_[static_cast<size_t>(index)]; };
    // What is kept in a place and what is read from it point to the same type; twice is enough in practice
    // (an argument stored in its slot, read again, and passed on).
    for (int round = 0; round < 2; ++round)
        for (auto [place, pointer] : kept_pointers_) {
            Symbol &where = at(place), &what = at(pointer);
            if (where.content == NO_TYPE) where.content = what.pointee;
            if (what.pointee == NO_TYPE) what.pointee = where.content;
            if (where.pointee == NO_TYPE) where.pointee = what.type;
        }
    for (const Pending& variable : pending_) {
        const Symbol& symbol = at(variable.symbol);
        TypeId pointee = variable.hint != NO_TYPE ? variable.hint : symbol.pointee;
        TypeId shown = recovered(variable.type, pointee, symbol.content);
        if (shown != variable.type) out.node_text[static_cast<size_t>(variable.node)] = value_text(shown, VARIABLE);
    }
}

}  // namespace apportion

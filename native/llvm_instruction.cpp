// The grammar of each instruction: its operands in LLVM's order, its successors, its result.
#include <array>
#include <unordered_set>

#include "llvm_module.h"

namespace apportion {

namespace {

enum class Form : uint8_t {
    Binary, Load, Store, Address, Call, Invoke, Callbr, Branch, Compare, Cast, Alloca, Phi, Return, Select,
    Switch, Unreachable, ExtractElement, InsertElement, Shuffle, ExtractValue, InsertValue, AtomicUpdate,
    CompareExchange, Unary, VariableArgument, Resume, Fence, IndirectBranch, LandingPad, CatchSwitch, Pad, CatchReturn,
    CleanupReturn,
};

struct OpcodeForm { View opcode; Form form; };
constexpr OpcodeForm OPCODES[] = {
    {"add", Form::Binary}, {"fadd", Form::Binary}, {"sub", Form::Binary}, {"fsub", Form::Binary}, {"mul", Form::Binary},
    {"fmul", Form::Binary}, {"udiv", Form::Binary}, {"sdiv", Form::Binary}, {"fdiv", Form::Binary}, {"urem", Form::Binary},
    {"srem", Form::Binary}, {"frem", Form::Binary}, {"shl", Form::Binary}, {"lshr", Form::Binary}, {"ashr", Form::Binary},
    {"and", Form::Binary}, {"or", Form::Binary}, {"xor", Form::Binary}, {"load", Form::Load}, {"store", Form::Store},
    {"getelementptr", Form::Address}, {"call", Form::Call}, {"invoke", Form::Invoke}, {"callbr", Form::Callbr},
    {"br", Form::Branch}, {"icmp", Form::Compare}, {"fcmp", Form::Compare}, {"trunc", Form::Cast}, {"zext", Form::Cast},
    {"sext", Form::Cast}, {"fptrunc", Form::Cast}, {"fpext", Form::Cast}, {"uitofp", Form::Cast}, {"sitofp", Form::Cast},
    {"fptoui", Form::Cast}, {"fptosi", Form::Cast}, {"ptrtoint", Form::Cast}, {"ptrtoaddr", Form::Cast},
    {"inttoptr", Form::Cast}, {"bitcast", Form::Cast}, {"addrspacecast", Form::Cast}, {"alloca", Form::Alloca},
    {"phi", Form::Phi}, {"ret", Form::Return}, {"select", Form::Select}, {"switch", Form::Switch},
    {"unreachable", Form::Unreachable}, {"extractelement", Form::ExtractElement}, {"insertelement", Form::InsertElement},
    {"shufflevector", Form::Shuffle}, {"extractvalue", Form::ExtractValue}, {"insertvalue", Form::InsertValue},
    {"atomicrmw", Form::AtomicUpdate}, {"cmpxchg", Form::CompareExchange}, {"fneg", Form::Unary}, {"freeze", Form::Unary},
    {"va_arg", Form::VariableArgument}, {"resume", Form::Resume}, {"fence", Form::Fence},
    {"indirectbr", Form::IndirectBranch}, {"landingpad", Form::LandingPad}, {"catchswitch", Form::CatchSwitch},
    {"catchpad", Form::Pad}, {"cleanuppad", Form::Pad}, {"catchret", Form::CatchReturn}, {"cleanupret", Form::CleanupReturn},
};

// Opcode words found by a hash of their length and three letters; the table is filled once.
struct OpcodeTable {
    std::array<const OpcodeForm*, 512> slots{};
    static size_t hash(View w) {
        return (w.size() * 131u + static_cast<unsigned char>(w[0]) * 29u + static_cast<unsigned char>(w[w.size() / 2]) * 7u +
                static_cast<unsigned char>(w.back()) * 97u) & 511u;
    }
    OpcodeTable() {
        for (const OpcodeForm& entry : OPCODES) {
            size_t place = hash(entry.opcode);
            while (slots[place]) place = (place + 1) & 511u;
            slots[place] = &entry;
        }
    }
    const OpcodeForm* find(View word) const {
        if (word.empty()) return nullptr;
        for (size_t place = hash(word); slots[place]; place = (place + 1) & 511u)
            if (slots[place]->opcode == word) return slots[place];
        return nullptr;
    }
};
const OpcodeTable OPCODE_TABLE;
static_assert(std::size(OPCODES) <= ModuleReader::OPCODE_COUNT);

constexpr View FLAGS[] = {
    "nuw", "nsw", "exact", "fast", "nnan", "ninf", "nsz", "arcp", "contract", "reassoc", "afn", "inbounds", "nusw",
    "disjoint", "nneg", "samesign", "volatile", "atomic", "weak", "inalloca", "swifterror",
};
constexpr View ORDERS[] = {"unordered", "monotonic", "acquire", "release", "acq_rel", "seq_cst"};
constexpr View PREDICATES[] = {
    "eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
    "ueq", "une", "uno", "true", "false",
};

template <size_t N>
bool among(View word, const View (&list)[N]) {
    for (View candidate : list) if (candidate == word) return true;
    return false;
}

}  // namespace

void Instruction::clear() {
    operands.clear();
    successors.clear();
    result = result_pointee = NO_TYPE;
    has_result = terminator = call = false;
    callee = callee_behind = loaded_from = stored_symbol = stored_to = -1;
}

// -- operands

Operand ModuleReader::local(const Name& name, TypeId type, const char* where) {
    Kind kind = types[type].kind;
    if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Function)
        c.fail_at(where, "a value cannot have type '" + types[type].printed + "'");
    int32_t index = symbol_of(name, where);
    Symbol& symbol = symbols_[static_cast<size_t>(index)];
    if (symbol.role == Symbol::Role::Block || symbol.role == Symbol::Role::BlockToCome)
        c.fail_at(where, "'" + name.printed('%') + "' is a basic block, not a value");
    if (symbol.type == NO_TYPE) symbol.type = type;
    else if (symbol.type != type)
        c.fail_at(where, "'" + name.printed('%') + "' defined with type '" + types[symbol.type].printed + "' but expected '" +
                             types[type].printed + "'");
    return {Operand::Role::Local, type, index};
}

int32_t ModuleReader::constant_index(TypeId type, View text) {
    if (text[0] == '@') {
        Cursor reference(text);
        Name name = name_after_sigil(reference, '@');
        // The view may lie in a buffer that is about to change; the name must outlive it.
        if (text.data() < text_.data() || text.data() >= text_.data() + text_.size()) {
            kept_.emplace_back(name.text);
            name.text = kept_.back();
        }
        int32_t index = global_of(name, c.p);
        Global& global = globals_[static_cast<size_t>(index)];
        if (global.constant < 0) {
            global.constant = static_cast<int32_t>(constants_.size());
            constants_.push_back({type, {}, index});
        }
        return global.constant;
    }
    // Few short numbers make up most uses: a small cache in front of the table spares making its key.
    RecentConstant* recent = nullptr;
    uint64_t packed = 0;
    if (text.size() <= sizeof packed) {
        memcpy(&packed, text.data(), text.size());
        recent = &recent_constants_[(packed * 0x9E3779B97F4A7C15ull >> 32 ^ static_cast<uint64_t>(type) * 0x85EBCA6Bull) % recent_constants_.size()];
        if (recent->type == type && recent->text == packed && recent->size == text.size()) return recent->index;
    }
    key_ = types[type].printed;
    key_ += ' ';
    key_ += text;
    int32_t index = constant_ids_.find(key_);
    if (index < 0) {
        index = static_cast<int32_t>(constants_.size());
        kept_.push_back(key_);
        constants_.push_back({type, key_, -1});
        constant_ids_.insert(kept_.back(), index);
    }
    if (recent) *recent = {type, static_cast<uint32_t>(text.size()), packed, index};
    return index;
}

Operand ModuleReader::constant(TypeId type) {
    return {Operand::Role::Constant, type, constant_index(type, constants_reader.read(type))};
}

Operand ModuleReader::value(TypeId type) {
    c.skip_space();
    if (*c.p == '%') {
        const char* where = c.p;
        return local(name_after_sigil(c, '%'), type, where);
    }
    return constant(type);
}

Operand ModuleReader::typed_value(bool attributes) {
    TypeId type = types.parse(c);
    if (types[type].kind == Kind::Metadata) c.fail("metadata can only be an argument of a call");
    if (attributes) parameter_attributes();
    return value(type);
}

// Attributes stand between a parameter's type and its value; every word that starts no value is one.
void ModuleReader::parameter_attributes() {
    for (;;) {
        c.skip_space();
        if (*c.p == '"') { c.string(); if (*c.p == '=') { ++c.p; c.string(); } continue; }
        if (!is(*c.p, LETTER)) return;
        const char* start = c.p;
        View word = c.word();
        if (ConstantReader::is_value_word(word) || (word == "c" && *c.p == '"')) { c.p = start; return; }
        if (types.scalar(word) != NO_TYPE) { c.p = start; c.fail_here("expected a name or an attribute"); }
        if (*c.p == '(') { c.balanced(); continue; }
        if (word == "align") {
            c.skip_blanks();
            if (is(*c.p, DIGIT)) c.number();
        }
    }
}

void ModuleReader::flags() {
    for (;;) {
        c.skip_space();
        if (*c.p == 'i' && is(c.p[1], DIGIT)) return;  // an integer type: the common case
        const char* start = c.p;
        View word = c.word();
        if (word == "inrange" && *c.p == '(') { c.balanced(); continue; }
        if (!among(word, FLAGS)) { c.p = start; return; }
    }
}

int32_t ModuleReader::label() {
    c.need_word("label");
    return block_named();
}

// '%name' where only a block can stand, met already or still to come.
int32_t ModuleReader::block_named() {
    const char* where = (c.skip_space(), c.p);
    Name name = name_after_sigil(c, '%');
    int32_t index = symbol_of(name, where);
    Symbol& symbol = symbols_[static_cast<size_t>(index)];
    if (symbol.role == Symbol::Role::Unknown && symbol.type == NO_TYPE) symbol.role = Symbol::Role::BlockToCome;
    if (symbol.role != Symbol::Role::Block && symbol.role != Symbol::Role::BlockToCome)
        c.fail_at(where, "'" + name.printed('%') + "' is not a basic block");
    return index;
}

Operand ModuleReader::pad() {
    TypeId token = types.scalar("token");
    c.skip_space();
    return value(token);
}

void ModuleReader::hint(Operand& pointer, TypeId pointee) {
    if (types[pointer.type].kind == Kind::OpaquePointer) pointer.pointee = pointee;
}

// -- types of results

TypeId ModuleReader::same_shape(TypeId shape, TypeId element) {
    return types[shape].kind == Kind::Vector ? types.vector_of(element, types[shape].count, types[shape].scalable) : element;
}

// The type that an address computation arrives at; NO_TYPE when a structure's body is not known here.
TypeId ModuleReader::element_at(TypeId type, const std::vector<Operand>& indices, size_t from) {
    for (size_t k = from; k < indices.size(); ++k) {
        const Type& t = types[type];
        if (t.kind == Kind::Array || t.kind == Kind::Vector) { type = t.element; continue; }
        if (t.kind == Kind::NamedStruct && t.element != NO_TYPE) { type = t.element; --k; continue; }
        if (t.kind != Kind::Struct && !(t.kind == Kind::NamedStruct && t.has_body)) return NO_TYPE;
        const Operand& index = indices[k];
        if (index.role != Operand::Role::Constant) c.fail("the index of a structure's member must be a constant");
        const std::string& text = constants_[static_cast<size_t>(index.index)].text;
        size_t space = text.rfind(' ');
        View digits = View(text).substr(space + 1);
        if (digits == "zeroinitializer") digits = "0";
        uint64_t member = 0;
        for (char d : digits) {
            if (!is(d, DIGIT) || member > 1'000'000'000) return NO_TYPE;  // a splat: not worked out
            member = member * 10 + static_cast<uint64_t>(d - '0');
        }
        if (member >= t.members.size()) c.fail("'" + t.printed + "' has no member " + std::to_string(member));
        type = t.members[member];
    }
    return type;
}

// -- the rest of the line

void ModuleReader::attachment() {
    c.skip_space();
    if (*c.p != '!') c.fail_here("expected metadata");
    ++c.p;
    View kind = c.word();
    if (kind.empty()) c.fail_here("expected the name of a metadata kind");
    c.skip_space();
    if (*c.p != '!') c.fail_here("expected metadata");
    if (is(c.p[1], DIGIT)) {
        Cursor number(View(c.p + 1, static_cast<size_t>(c.end - c.p - 1)));
        const char* where = c.p;
        metadata_uses_.emplace_back(number.number(), where);
        // The instruction whose line this is becomes the next node.
        if (kind == "prof" && open_) profiles_.emplace_back(static_cast<int32_t>(out.node_type.size()), metadata_uses_.back().first);
    }
    skip_metadata();
}

void ModuleReader::alignment() {
    const char* where = c.p;
    uint64_t bytes = c.number();
    if (bytes & (bytes - 1)) c.fail_at(where, "an alignment must be a power of two");
}

void ModuleReader::trailing() {
    for (;;) {
        instruction_end_ = c.p;
        c.skip_space();
        if (*c.p != ',') { c.p = instruction_end_; return; }
        ++c.p;
        c.skip_space();
        if (*c.p == '!') { attachment(); continue; }
        const char* where = c.p;
        View word = c.word();
        if (word == "align") alignment();
        else if (word == "addrspace") { c.p = where; TypeTable::address_space(c); }
        else { c.p = where; c.fail_here("expected 'align' or metadata"); }
    }
}

// Past the comma before one more operand; false, and nothing passed, at the end or before an attachment.
bool ModuleReader::another_operand() {
    const char* before = c.p;
    if (c.eat(',') && !c.at('!')) return true;
    c.p = before;
    return false;
}

void ModuleReader::memory_order(View opcode) {
    c.skip_blanks();
    if (c.eat_word("syncscope")) { c.need('('); c.string(); c.need(')'); }
    c.eat_word("singlethread");
    View word = c.word();
    if (!among(word, ORDERS)) c.fail_at(c.p - word.size(), "'" + std::string(opcode) + "' needs a memory order");
}

void ModuleReader::bundles() {
    c.need('[');
    if (!c.at(']')) do {
        c.string();
        c.need('(');
        if (!c.at(')')) do now.operands.push_back(typed_value()); while (c.eat(','));
        c.need(')');
    } while (c.eat(','));
    c.need(']');
}

void ModuleReader::call(bool invoke, bool callbr) {
    const char* start = c.p;
    for (;;) {  // fast-math flags, calling convention, attributes of the result, address space
        c.skip_space();
        if (*c.p == '"') { c.string(); if (*c.p == '=') { ++c.p; c.string(); } continue; }
        if (TypeTable::starts(c)) break;
        View word = c.word();
        if (word.empty()) c.fail_here("expected the type of the call's result");
        if (*c.p == '(') c.balanced();
    }
    TypeId type = types.parse(c);
    if (types[type].kind == Kind::Pointer && types[types[type].element].kind == Kind::Function) type = types[type].element;  // LLVM 3.x
    bool whole = types[type].kind == Kind::Function;
    TypeId result = whole ? types[type].element : type;

    // The callee is written before its arguments but is the last operand, and its type follows from them.
    c.skip_space();
    const char* callee_at = c.p;
    Name callee;
    bool direct = false, through_local = false, assembly = false;
    if (*c.p == '@') { callee = name_after_sigil(c, '@'); direct = true; }
    else if (*c.p == '%') { callee = name_after_sigil(c, '%'); through_local = true; }
    else if (c.peek_word() == "asm") {
        c.word();
        while (!c.at('"')) {
            View flag = c.word();
            if (flag != "sideeffect" && flag != "alignstack" && flag != "inteldialect" && flag != "unwind")
                c.fail_at(c.p - flag.size(), "expected the text of the assembly");
        }
        c.string();
        c.need(',');
        c.string();
        assembly = true;
    } else constants_reader.skip();
    const char* after_callee = c.p;
    View callee_text(callee_at, static_cast<size_t>(after_callee - callee_at));
    if (!direct && callee_text.find("to ptr") != View::npos) types.saw_opaque_pointer = true;  // perhaps the first one

    std::vector<TypeId>& parameters = parameters_;
    parameters.clear();
    c.need('(');
    if (!c.at(')')) do {
        if (c.at('.')) { c.need_word("..."); break; }  // musttail in a variadic function
        TypeId argument = types.parse(c);
        if (types[argument].kind == Kind::Metadata) { skip_metadata(); now.operands.emplace_back(); }
        else { parameter_attributes(); now.operands.push_back(value(argument)); }
        parameters.push_back(argument);
    } while (c.eat(','));
    c.need(')');
    if (whole) {
        const Type& f = types[type];
        if (parameters.size() < f.members.size() || (parameters.size() > f.members.size() && !f.variadic))
            c.fail_at(start, "'" + f.printed + "' called with " + std::to_string(parameters.size()) + " arguments");
        for (size_t k = 0; k < f.members.size(); ++k)
            if (f.members[k] != parameters[k])
                c.fail_at(start, "argument " + std::to_string(k) + " has type '" + types[parameters[k]].printed + "', not '" +
                                     types[f.members[k]].printed + "'");
    }
    // Attributes of the call stand on its own line.
    for (;;) {
        c.skip_blanks();
        if (*c.p == '#') { ++c.p; c.number(); continue; }
        if (*c.p == '"') { c.string(); if (*c.p == '=') { ++c.p; c.string(); } continue; }
        if (*c.p == '[') { bundles(); continue; }
        if (!is(*c.p, LETTER)) break;
        const char* word_at = c.p;
        View word = c.word();
        if (word == "to") { c.p = word_at; break; }
        if (*c.p == '(') c.balanced();
        else if (word == "align") c.number();
    }
    if (invoke || callbr) {
        now.terminator = true;
        c.need_word("to");
        now.successors.push_back(label());
        now.operands.emplace_back();
        if (invoke) {
            c.need_word("unwind");
            now.successors.push_back(label());
            now.operands.emplace_back();
        } else {
            c.need('[');
            if (!c.at(']')) do { now.successors.push_back(label()); now.operands.emplace_back(); } while (c.eat(','));
            c.need(']');
        }
    }
    const char* end = c.p;

    // A function that is already known is no operand, so the type of the pointer to it is not needed.
    bool known = false;
    if (direct) {
        int32_t index = global_of(callee, callee_at);
        known = globals_[static_cast<size_t>(index)].role == Global::Role::Function;
    }
    TypeId function = whole ? type : known ? NO_TYPE : types.function(result, parameters, false);
    TypeId pointer = known ? result : types.saw_opaque_pointer ? types.opaque_pointer(0) : types.pointer_to(function, 0);
    if (assembly) now.operands.emplace_back();
    else if (through_local) {
        // The address space of an indirect callee is not written; keep the one it was defined with.
        TypeId defined = symbols_[static_cast<size_t>(symbol_of(callee, callee_at))].type;
        if (defined != NO_TYPE && types[defined].kind == Kind::OpaquePointer) pointer = defined;
        Operand operand = local(callee, pointer, callee_at);
        hint(operand, function);
        now.operands.push_back(operand);
    } else if (direct) {
        now.operands.push_back({Operand::Role::Constant, pointer, constant_index(pointer, {callee_at, static_cast<size_t>(after_callee - callee_at)})});
        now.callee = constants_[static_cast<size_t>(now.operands.back().index)].global;
    } else {
        size_t mentioned = constants_reader.references.size();
        c.p = callee_at;
        now.operands.push_back(constant(pointer));
        c.p = end;
        now.callee = constants_[static_cast<size_t>(now.operands.back().index)].global;
        if (now.callee < 0 && constants_reader.references.size() == mentioned + 1)
            now.callee_behind = global_of(constants_reader.references.back().name, callee_at);
    }
    // LLVM upgrades the five-argument memory intrinsics of old: the alignment is no longer an operand.
    if (now.callee >= 0 && parameters.size() == 5) {
        View name = globals_[static_cast<size_t>(now.callee)].name.text;
        if (memory_intrinsic(name)) now.operands.erase(now.operands.begin() + 3);
    }
    now.call = !invoke && !callbr;
    now.result = result;
    now.has_result = types[result].kind != Kind::Void;
}

// -- the instructions

void ModuleReader::instruction() {
    const char* start = (c.skip_space(), c.p);
    View word = c.word();
    if (word == "tail" || word == "musttail" || word == "notail") {
        word = c.word();
        if (word != "call") c.fail_at(start, "expected 'call'");
    }
    const OpcodeForm* entry = OPCODE_TABLE.find(word);
    if (!entry) { c.p = start; c.fail_here("expected an instruction"); }
    now.opcode = entry->opcode;
    int32_t& opcode_text = opcode_texts_[static_cast<size_t>(entry - OPCODES)];
    if (opcode_text < 0) opcode_text = text_of(entry->opcode);
    now.opcode_text = opcode_text;
    auto& operands = now.operands;
    auto gives = [&](TypeId type) { now.result = type; now.has_result = true; };
    auto comma = [&] { c.need(','); };
    auto pointer_checked = [&](Operand operand) {
        if (!types.pointer_like(operand.type)) c.fail_at(start, "'" + std::string(word) + "' needs a pointer, not '" + types[operand.type].printed + "'");
        return operand;
    };
    switch (entry->form) {
        case Form::Binary: case Form::Compare: {
            flags();
            bool compare = entry->form == Form::Compare;
            if (compare) {
                View predicate = c.word();
                if (!among(predicate, PREDICATES)) c.fail_at(c.p - predicate.size(), "expected a comparison, not '" + std::string(predicate) + "'");
            }
            TypeId type = types.parse(c);
            operands.push_back(value(type));
            comma();
            operands.push_back(value(type));
            TypeId element = types[type].kind == Kind::Vector ? types[type].element : type;
            Kind kind = types[element].kind;
            bool floating = word[0] == 'f';
            bool fits = floating ? kind == Kind::Floating : kind == Kind::Integer || (compare && types.pointer_like(element));
            if (!fits) c.fail_at(start, "'" + std::string(word) + "' cannot work on '" + types[type].printed + "'");
            gives(compare ? same_shape(type, types.integer(1)) : type);
            break;
        }
        case Form::Load: {
            bool atomic = false;
            for (;;) { if (c.eat_word("atomic")) atomic = true; else if (!c.eat_word("volatile")) break; }
            TypeId type = types.parse(c);
            if (c.at(',')) {
                comma();
                operands.push_back(pointer_checked(typed_value()));
                TypeId pointer = operands[0].type;
                if (types[pointer].kind == Kind::Pointer && types[pointer].element != type)
                    c.fail_at(start, "'" + types[type].printed + "' loaded through '" + types[pointer].printed + "'");
            } else {  // LLVM up to 3.6: the pointer alone
                operands.push_back(pointer_checked(value(type)));
                if (types[type].kind != Kind::Pointer) c.fail_at(start, "expected ',' after the type of the load");
                type = types[type].element;
            }
            if (atomic) memory_order(word);
            hint(operands[0], type);
            gives(type);
            if (types[type].kind == Kind::OpaquePointer && operands[0].role == Operand::Role::Local) now.loaded_from = operands[0].index;
            break;
        }
        case Form::Store: {
            bool atomic = false;
            for (;;) { if (c.eat_word("atomic")) atomic = true; else if (!c.eat_word("volatile")) break; }
            operands.push_back(typed_value());
            comma();
            operands.push_back(pointer_checked(typed_value()));
            TypeId pointer = operands[1].type;
            if (types[pointer].kind == Kind::Pointer && types[pointer].element != operands[0].type)
                c.fail_at(start, "'" + types[operands[0].type].printed + "' stored through '" + types[pointer].printed + "'");
            if (atomic) memory_order(word);
            hint(operands[1], operands[0].type);
            if (types[operands[0].type].kind == Kind::OpaquePointer && operands[0].role == Operand::Role::Local &&
                operands[1].role == Operand::Role::Local) {
                now.stored_symbol = operands[0].index;
                now.stored_to = operands[1].index;
            }
            break;
        }
        case Form::Address: {
            flags();
            TypeId source = types.parse(c);
            if (c.at(',')) { comma(); operands.push_back(typed_value()); }
            else { operands.push_back(value(source)); source = NO_TYPE; }  // LLVM up to 3.6
            TypeId base = operands[0].type;
            TypeId pointer = types[base].kind == Kind::Vector ? types[base].element : base;
            if (!types.pointer_like(pointer)) c.fail_at(start, "the base of 'getelementptr' must be a pointer");
            if (types[pointer].kind == Kind::Pointer) {
                if (source != NO_TYPE && types[pointer].element != source)
                    c.fail_at(start, "'" + types[source].printed + "' addressed through '" + types[pointer].printed + "'");
                source = types[pointer].element;
            } else if (source == NO_TYPE) c.fail_at(start, "expected ',' after the type of the address");
            TypeId shape = base;
            while (another_operand()) {
                c.eat_word("inrange");
                operands.push_back(typed_value());
                Kind kind = types[operands.back().type].kind;
                TypeId index = kind == Kind::Vector ? types[operands.back().type].element : operands.back().type;
                if (types[index].kind != Kind::Integer) c.fail_at(start, "an index must be an integer");
                if (kind == Kind::Vector && types[shape].kind != Kind::Vector) shape = operands.back().type;
            }
            hint(operands[0], source);
            TypeId reached = operands.size() > 2 ? element_at(source, operands, 2) : source;
            TypeId space = types[pointer].kind == Kind::OpaquePointer ? pointer
                           : reached == NO_TYPE ? NO_TYPE
                                                : types.pointer_to(reached, types[pointer].count);
            gives(space == NO_TYPE ? NO_TYPE : same_shape(shape, space));
            now.result_pointee = reached;
            break;
        }
        case Form::Call: call(false, false); break;
        case Form::Invoke: call(true, false); break;
        case Form::Callbr: call(false, true); break;
        case Form::Branch:
            now.terminator = true;
            if (c.peek_word() == "label") now.successors.push_back(label());
            else {
                operands.push_back(typed_value());
                if (types[operands[0].type].printed != "i1") c.fail_at(start, "a branch condition must be 'i1', not '" + types[operands[0].type].printed + "'");
                comma();
                now.successors.push_back(label());
                comma();
                now.successors.push_back(label());
            }
            break;
        case Form::Cast: {
            flags();
            operands.push_back(typed_value());
            c.need_word("to");
            gives(types.parse(c));
            break;
        }
        case Form::Alloca: {
            flags();
            TypeId type = types.parse(c);
            Kind kind = types[type].kind;
            if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Metadata || kind == Kind::Function || kind == Kind::Token)
                c.fail_at(start, "'" + types[type].printed + "' cannot be allocated");
            Operand count{Operand::Role::Constant, types.integer(32), -1};
            uint64_t space = 0;
            while (another_operand()) {
                View next = c.peek_word();
                if (next == "align") { c.word(); alignment(); }
                else if (next == "addrspace") space = TypeTable::address_space(c);
                else count = typed_value();
            }
            if (count.role == Operand::Role::Constant && count.index < 0) count.index = constant_index(count.type, "1");
            operands.push_back(count);
            gives(types.saw_opaque_pointer ? types.opaque_pointer(space) : types.pointer_to(type, space));
            now.result_pointee = type;
            // Before the first pointer of the module is seen, its dialect is not known.
            if (!types.saw_opaque_pointer) now.result = NO_TYPE;
            break;
        }
        case Form::Phi: {
            flags();
            TypeId type = types.parse(c);
            do {
                c.need('[');
                operands.push_back(value(type));
                comma();
                block_named();
                c.need(']');
            } while (another_operand());
            gives(type);
            break;
        }
        case Form::Return: {
            now.terminator = true;
            TypeId type = types.parse(c);
            if (type != function_result_)
                c.fail_at(start, "'" + types[type].printed + "' returned from a function of type '" + types[function_result_].printed + "'");
            if (types[type].kind != Kind::Void) operands.push_back(value(type));
            break;
        }
        case Form::Select: {
            flags();
            operands.push_back(typed_value());
            comma();
            operands.push_back(typed_value());
            comma();
            operands.push_back(typed_value());
            if (operands[1].type != operands[2].type) c.fail_at(start, "the two values of 'select' differ in type");
            gives(operands[1].type);
            break;
        }
        case Form::Switch: {
            now.terminator = true;
            operands.push_back(typed_value());
            comma();
            now.successors.push_back(label());
            operands.emplace_back();
            c.need('[');
            std::unordered_set<int32_t> cases;
            while (!c.at(']')) {
                const char* where = c.p;
                operands.push_back(typed_value());
                if (!cases.insert(operands.back().index).second) c.fail_at(where, "this case occurs twice");
                if (operands.back().type != operands[0].type || operands.back().role != Operand::Role::Constant)
                    c.fail("a case must be a constant of type '" + types[operands[0].type].printed + "'");
                comma();
                now.successors.push_back(label());
                operands.emplace_back();
            }
            c.need(']');
            break;
        }
        case Form::Unreachable: now.terminator = true; break;
        case Form::ExtractElement: {
            operands.push_back(typed_value());
            comma();
            operands.push_back(typed_value());
            if (types[operands[0].type].kind != Kind::Vector) c.fail_at(start, "'extractelement' needs a vector");
            gives(types[operands[0].type].element);
            break;
        }
        case Form::InsertElement: case Form::Shuffle: {
            for (int k = 0; k < 3; ++k) {
                if (k) comma();
                operands.push_back(typed_value());
            }
            TypeId vector = operands[0].type;
            if (types[vector].kind != Kind::Vector) c.fail_at(start, "'" + std::string(word) + "' needs a vector");
            if (entry->form == Form::InsertElement) { gives(vector); break; }
            TypeId mask = operands[2].type;
            if (types[mask].kind != Kind::Vector) c.fail_at(start, "the mask of 'shufflevector' must be a vector");
            gives(types.vector_of(types[vector].element, types[mask].count, types[mask].scalable));
            break;
        }
        case Form::ExtractValue: case Form::InsertValue: {
            operands.push_back(typed_value());
            if (entry->form == Form::InsertValue) { comma(); operands.push_back(typed_value()); }
            TypeId type = operands[0].type;
            size_t indices = 0;
            while (another_operand()) {
                uint64_t index = c.number();
                ++indices;
                if (type == NO_TYPE) continue;
                const Type& t = types[type];
                if (t.kind == Kind::Array && index < t.count) type = t.element;
                else if (t.kind == Kind::Struct && index < t.members.size()) type = t.members[index];
                else if (t.kind == Kind::NamedStruct && (!t.has_body || index < t.members.size())) type = t.has_body ? t.members[index] : NO_TYPE;
                else c.fail_at(start, "'" + t.printed + "' has no member " + std::to_string(index));
            }
            if (!indices) c.fail_at(start, "'" + std::string(word) + "' needs an index");
            if (entry->form == Form::InsertValue && type != NO_TYPE && type != operands[1].type)
                c.fail_at(start, "a member of type '" + types[type].printed + "' cannot hold '" + types[operands[1].type].printed + "'");
            gives(entry->form == Form::InsertValue ? operands[0].type : type);
            break;
        }
        case Form::AtomicUpdate: {
            c.eat_word("volatile");
            if (c.word().empty()) c.fail_here("expected an operation");
            operands.push_back(pointer_checked(typed_value()));
            comma();
            operands.push_back(typed_value());
            memory_order(word);
            hint(operands[0], operands[1].type);
            gives(operands[1].type);
            break;
        }
        case Form::CompareExchange: {
            flags();
            operands.push_back(pointer_checked(typed_value()));
            comma();
            operands.push_back(typed_value());
            comma();
            operands.push_back(typed_value());
            memory_order(word);
            c.skip_blanks();
            bool pair = is(*c.p, LETTER);  // up to LLVM 3.4 one order, and the old value alone as the result
            if (pair) memory_order(word);
            hint(operands[0], operands[1].type);
            gives(pair ? types.structure({operands[1].type, types.integer(1)}, false) : NO_TYPE);
            break;
        }
        case Form::Unary: {
            flags();
            operands.push_back(typed_value());
            gives(operands[0].type);
            break;
        }
        case Form::VariableArgument: {
            operands.push_back(typed_value());
            comma();
            gives(types.parse(c));
            break;
        }
        case Form::Resume: now.terminator = true; operands.push_back(typed_value()); break;
        case Form::Fence: memory_order(word); break;
        case Form::IndirectBranch: {
            now.terminator = true;
            operands.push_back(typed_value());
            comma();
            c.need('[');
            if (!c.at(']')) do { now.successors.push_back(label()); operands.emplace_back(); } while (c.eat(','));
            c.need(']');
            break;
        }
        case Form::LandingPad: {
            gives(types.parse(c));
            if (c.eat_word("personality")) { types.parse(c); constants_reader.skip(); }  // LLVM up to 3.6
            for (;;) {
                const char* before = c.p;
                View clause = c.word();
                if (clause == "cleanup") continue;
                if (clause == "catch" || clause == "filter") { operands.push_back(typed_value()); continue; }
                c.p = before;
                break;
            }
            break;
        }
        case Form::CatchSwitch: {
            now.terminator = true;
            c.need_word("within");
            operands.push_back(pad());
            std::vector<int32_t> handlers;
            c.need('[');
            do handlers.push_back(label()); while (c.eat(','));
            c.need(']');
            c.need_word("unwind");
            if (c.eat_word("to")) c.need_word("caller");
            else now.successors.push_back(label());
            now.successors.insert(now.successors.end(), handlers.begin(), handlers.end());
            gives(types.scalar("token"));
            break;
        }
        case Form::Pad: {
            c.need_word("within");
            Operand parent = pad();
            c.need('[');
            if (!c.at(']')) do operands.push_back(typed_value(true)); while (c.eat(','));
            c.need(']');
            operands.push_back(parent);
            gives(types.scalar("token"));
            break;
        }
        case Form::CatchReturn:
            now.terminator = true;
            c.need_word("from");
            operands.push_back(pad());
            c.need_word("to");
            now.successors.push_back(label());
            break;
        case Form::CleanupReturn:
            now.terminator = true;
            c.need_word("from");
            operands.push_back(pad());
            c.need_word("unwind");
            if (c.eat_word("to")) c.need_word("caller");
            else now.successors.push_back(label());
            break;
    }
    trailing();
}

}  // namespace apportion

#include "llvm_type.h"

namespace apportion {

namespace {

// Deeper nesting than this is an attack on the stack, not a program.
constexpr int MAX_DEPTH = 200;
constexpr uint64_t MAX_INTEGER_BITS = (1u << 23);

constexpr int MAX_LEVELS = 200;

struct Depth {
    int& depth;
    Depth(int& d, Cursor& c) : depth(d) {
        if (++depth > MAX_DEPTH) { depth = 0; c.fail("types are nested too deeply"); }
    }
    ~Depth() { --depth; }
};

bool is_integer_word(View word) {
    if (word.size() < 2 || word[0] != 'i') return false;
    for (char c : word.substr(1)) if (!is(c, DIGIT)) return false;
    return true;
}

struct ScalarWord { View word; Kind kind; };
constexpr ScalarWord SCALARS[] = {
    {"void", Kind::Void}, {"label", Kind::Label}, {"token", Kind::Token}, {"metadata", Kind::Metadata},
    {"half", Kind::Floating}, {"bfloat", Kind::Floating}, {"float", Kind::Floating}, {"double", Kind::Floating},
    {"x86_fp80", Kind::Floating}, {"fp128", Kind::Floating}, {"ppc_fp128", Kind::Floating},
    {"x86_mmx", Kind::OtherScalar}, {"x86_amx", Kind::OtherScalar},
};

}  // namespace

TypeTable::TypeTable() {
    for (const ScalarWord& s : SCALARS) unique({s.kind, NO_TYPE, 0, {}, std::string(s.word)});
}

TypeId TypeTable::scalar(View word) {
    for (size_t i = 0; i < std::size(SCALARS); ++i)
        if (SCALARS[i].word == word) return static_cast<TypeId>(i);  // in the order the constructor made them
    return NO_TYPE;
}

TypeId TypeTable::unique(Type type) {
    TypeId known = by_text_.find(type.printed);
    if (known != NO_TYPE) return known;
    types_.push_back(std::make_unique<Type>(std::move(type)));
    TypeId id = static_cast<TypeId>(types_.size()) - 1;
    by_text_.insert(types_.back()->printed, id);
    return id;
}

TypeId TypeTable::integer(uint64_t bits) {
    if (bits < integers_.size() && integers_[bits] != NO_TYPE) return integers_[bits];
    TypeId id = unique({Kind::Integer, NO_TYPE, bits, {}, "i" + std::to_string(bits)});
    if (bits <= 128) {
        if (integers_.size() <= bits) integers_.resize(129, NO_TYPE);
        integers_[bits] = id;
    }
    return id;
}

TypeId TypeTable::pointer_to(TypeId pointee, uint64_t space) {
    if (space == 0 && (*this)[pointee].pointer != NO_TYPE)
        return (*this)[pointee].pointer;
    std::string printed = (*this)[pointee].printed;
    if (space) printed += " addrspace(" + std::to_string(space) + ")";
    TypeId id = unique({Kind::Pointer, pointee, space, {}, printed + "*"});
    if (space == 0) (*this)[pointee].pointer = id;
    return id;
}

TypeId TypeTable::opaque_pointer(uint64_t space) {
    saw_opaque_pointer = true;
    return unique({Kind::OpaquePointer, NO_TYPE, space, {},
                   space ? "ptr addrspace(" + std::to_string(space) + ")" : "ptr"});
}

TypeId TypeTable::vector_of(TypeId element, uint64_t count, bool scalable) {
    Type type{Kind::Vector, element, count, {},
              std::string("<") + (scalable ? "vscale x " : "") + std::to_string(count) + " x " +
                  (*this)[element].printed + ">"};
    type.scalable = scalable;
    return unique(std::move(type));
}

TypeId TypeTable::array_of(TypeId element, uint64_t count) {
    return unique({Kind::Array, element, count, {},
                   "[" + std::to_string(count) + " x " + (*this)[element].printed + "]"});
}

std::string TypeTable::joined(const std::vector<TypeId>& types, bool variadic) const {
    std::string out;
    for (TypeId t : types) {
        if (!out.empty()) out += ", ";
        out += (*this)[t].printed;
    }
    if (variadic) out += out.empty() ? "..." : ", ...";
    return out;
}

TypeId TypeTable::function(TypeId result, const std::vector<TypeId>& parameters, bool variadic) {
    Type type{Kind::Function, result, 0, parameters,
              (*this)[result].printed + " (" + joined(parameters, variadic) + ")"};
    type.variadic = variadic;
    return unique(std::move(type));
}

TypeId TypeTable::structure(const std::vector<TypeId>& members, bool packed) {
    std::string body = members.empty() ? "{}" : "{ " + joined(members, false) + " }";
    return unique({Kind::Struct, NO_TYPE, 0, members, packed ? "<" + body + ">" : body});
}

bool TypeTable::starts(Cursor& c) {
    c.skip_space();
    switch (*c.p) {
        case '%': case '[': case '<': case '{': return true;
        default: break;
    }
    View word = c.peek_word();
    if (is_integer_word(word) || word == "ptr" || word == "target") return true;
    for (const ScalarWord& s : SCALARS) if (s.word == word) return true;
    return false;
}

uint64_t TypeTable::address_space(Cursor& c) {
    const char* start = c.p;
    if (c.word() != "addrspace") { c.p = start; return 0; }
    c.need('(');
    // Newer assemblies may name the space by a letter string ("A", "G", "P"): the default, as far as a graph goes.
    if (c.at('"')) { c.string(); c.need(')'); return 0; }
    uint64_t space = c.number();
    c.need(')');
    return space;
}

TypeId TypeTable::base(Cursor& c) {
    c.skip_space();
    const char* start = c.p;
    switch (*c.p) {
        case '%': {
            Name name = name_after_sigil(c, '%');
            TypeId id = unique({Kind::NamedStruct, NO_TYPE, 0, {}, name.printed('%')});
            if (!(*this)[id].first_use) (*this)[id].first_use = start;
            return id;
        }
        case '[': {
            ++c.p;
            uint64_t count = c.number();
            c.need_word("x");
            TypeId element = parse(c);
            c.need(']');
            return array_of(element, count);
        }
        case '<': {
            ++c.p;
            if (c.at('{')) {
                ++c.p;
                std::vector<TypeId> members;
                if (!c.at('}')) do members.push_back(parse(c)); while (c.eat(','));
                c.need('}');
                c.need('>');
                return structure(members, true);
            }
            bool scalable = c.eat_word("vscale");
            if (scalable) c.need_word("x");
            uint64_t count = c.number();
            if (count == 0) c.fail_at(start, "a vector must have at least one element");
            c.need_word("x");
            TypeId element = parse(c);
            c.need('>');
            return vector_of(element, count, scalable);
        }
        case '{': {
            ++c.p;
            std::vector<TypeId> members;
            if (!c.at('}')) do members.push_back(parse(c)); while (c.eat(','));
            c.need('}');
            return structure(members, false);
        }
        default: break;
    }
    View word = c.word();
    if (is_integer_word(word)) {
        uint64_t bits = 0;
        for (char d : word.substr(1)) bits = bits > MAX_INTEGER_BITS ? bits : bits * 10 + static_cast<uint64_t>(d - '0');
        if (bits == 0 || bits > MAX_INTEGER_BITS) c.fail_at(start, "an integer type must have 1 to 8388608 bits");
        return integer(bits);
    }
    if (word == "ptr") {
        const char* after = c.p;
        c.skip_blanks();
        if (strncmp(c.p, "addrspace", 9) == 0 && c.p[9] != 'c') return opaque_pointer(address_space(c));
        c.p = after;
        return opaque_pointer(0);
    }
    if (word == "target") {
        c.skip_blanks();
        if (*c.p != '(') c.fail_here("expected '(' after 'target'");
        c.balanced();
        return unique({Kind::Target, NO_TYPE, 0, {}, std::string(start, c.p)});
    }
    TypeId id = scalar(word);
    if (id == NO_TYPE) { c.p = start; c.fail_here("expected a type"); }
    return id;
}

TypeId TypeTable::parse(Cursor& c) {
    Depth guard(depth_, c);
    const char* start = (c.skip_space(), c.p);
    TypeId id = base(c);
    for (int levels = 0;; ++levels) {
        // Each level is written out with all that is inside it: without a limit that is quadratic.
        if (levels > MAX_LEVELS) c.fail_at(start, "a type has too many levels of pointers and functions");
        const char* after = c.p;
        c.skip_blanks();
        if (*c.p == '*') {
            Kind kind = (*this)[id].kind;
            if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Metadata || kind == Kind::OpaquePointer || kind == Kind::Token)
                c.fail_at(start, "pointers to " + (*this)[id].printed + " are invalid");
            ++c.p;
            id = pointer_to(id, 0);
        } else if (*c.p == '(') {
            ++c.p;
            std::vector<TypeId> parameters;
            bool variadic = false;
            if (!c.at(')')) do {
                if (c.at('.')) { c.need_word("..."); variadic = true; break; }
                parameters.push_back(parse(c));
            } while (c.eat(','));
            c.need(')');
            id = function(id, parameters, variadic);
        } else if (*c.p == 'a' && strncmp(c.p, "addrspace", 9) == 0 && c.p[9] != 'c') {  // no addrspacecast
            uint64_t space = address_space(c);
            if (!c.eat('*')) c.fail_here("expected '*' after an address space");
            id = pointer_to(id, space);
        } else {
            c.p = after;
            return id;
        }
    }
}

void TypeTable::define(const Name& name, Cursor& c) {
    TypeId id = unique({Kind::NamedStruct, NO_TYPE, 0, {}, name.printed('%')});
    if ((*this)[id].defined) c.fail("redefinition of type '" + (*this)[id].printed + "'");
    (*this)[id].defined = true;
    if (c.eat_word("opaque")) return;
    TypeId body = parse(c);
    if ((*this)[body].kind != Kind::Struct) {
        // LLVM 3.x could name any type; what the name stands for is all that a graph needs.
        (*this)[id].element = body;
        (*this)[id].has_body = true;
        return;
    }
    (*this)[id].members = (*this)[body].members;
    (*this)[id].has_body = true;
}

void TypeTable::check_all_defined(const Cursor& c) const {
    for (const auto& type : types_)
        if (type->kind == Kind::NamedStruct && !type->defined)
            c.fail_at(type->first_use, "use of undefined type '" + type->printed + "'");
}

}  // namespace apportion

#include "llvm_constant.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_set>

namespace apportion {

namespace {

constexpr int MAX_DEPTH = 200;

const std::unordered_set<View> CASTS = {
    "trunc", "zext", "sext", "fptrunc", "fpext", "uitofp", "sitofp", "fptoui", "fptosi",
    "ptrtoint", "ptrtoaddr", "inttoptr", "bitcast", "addrspacecast",
};
const std::unordered_set<View> SIMPLE = {"true", "false", "null", "undef", "poison", "zeroinitializer", "none"};
const std::unordered_set<View> EXPRESSIONS = {
    "trunc", "zext", "sext", "fptrunc", "fpext", "uitofp", "sitofp", "fptoui", "fptosi", "ptrtoint", "ptrtoaddr",
    "inttoptr", "bitcast", "addrspacecast", "getelementptr", "select", "icmp", "fcmp", "extractelement",
    "insertelement", "shufflevector", "extractvalue", "insertvalue", "add", "sub", "mul", "udiv", "sdiv", "urem",
    "srem", "shl", "lshr", "ashr", "and", "or", "xor", "fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "splat",
    "ptrauth", "blockaddress", "dso_local_equivalent", "no_cfi",
};

struct Depth {
    int& depth;
    Depth(int& d, Cursor& c) : depth(d) {
        if (++depth > MAX_DEPTH) { depth = 0; c.fail("constants are nested too deeply"); }
    }
    ~Depth() { --depth; }
};

}  // namespace

bool ConstantReader::is_value_word(View word) {
    return SIMPLE.count(word) || EXPRESSIONS.count(word) || word == "asm";
}

void ConstantReader::mismatch(const char* where, const std::string& what, TypeId type) {
    c.fail_at(where, what + " cannot have type '" + types[type].printed + "'");
}

View ConstantReader::read(TypeId type) {
    View text;
    if (plain(type, text)) return text;
    scratch_.clear();
    write(type, scratch_);
    return scratch_;
}

// The common case without copying: a small integer, or a word, that is printed as it stands.
bool ConstantReader::plain(TypeId type, View& out) {
    c.skip_space();
    const char* start = c.p;
    const Type& t = types[type];
    if (t.kind == Kind::Integer && t.count >= 8) {
        const char* q = start;
        bool negative = *q == '-';
        if (negative) ++q;
        const char* first = q;
        while (is(*q, DIGIT)) ++q;
        // Two digits fit any such type; nine fit 32 bits.
        size_t digits = static_cast<size_t>(q - first);
        size_t limit = t.count >= 64 ? 18 : t.count >= 32 ? 9 : 2;
        if (digits == 0 || digits > limit || is(*q, IDENTIFIER) || (*first == '0' && (digits > 1 || negative))) return false;
        c.p = q;
        out = {start, static_cast<size_t>(q - start)};
        return true;
    }
    return false;
}

void ConstantReader::write(TypeId type, std::string& out) {
    Depth guard(depth_, c);
    c.skip_space();
    const char* start = c.p;
    Kind kind = types[type].kind;
    switch (*c.p) {
        case '@': {
            Name name = name_after_sigil(c, '@');
            if (!types.pointer_like(type)) mismatch(start, "a global", type);
            references.push_back({name, start});
            out += name.printed('@');
            return;
        }
        case '[': case '{': case '<': aggregate(type, out); return;
        case '%': c.fail("a value that is computed cannot stand inside a constant");
        case '!': c.fail("metadata cannot stand here");
        default: break;
    }
    if (is(*c.p, DIGIT) || *c.p == '-' || *c.p == '+') { number(type, out); return; }
    View word = c.word();
    if (word.empty()) c.fail_here("expected a value");
    if (word == "c" && *c.p == '"') { characters(type, out); return; }
    if (word == "true" || word == "false") {
        if (kind != Kind::Integer || types[type].count != 1) mismatch(start, "'" + std::string(word) + "'", type);
    } else if (word == "null") {
        if (!types.pointer_like(type)) mismatch(start, "'null'", type);
    } else if (word == "none") {
        if (kind != Kind::Token) mismatch(start, "'none'", type);
    } else if (SIMPLE.count(word)) {
        if (kind == Kind::Void || kind == Kind::Label || kind == Kind::Metadata || kind == Kind::Function)
            mismatch(start, "'" + std::string(word) + "'", type);
    } else if (EXPRESSIONS.count(word)) {
        expression(type, word, start, out);
        return;
    } else if ((word.substr(0, 3) == "s0x" || word.substr(0, 3) == "u0x") && kind == Kind::Integer) {
        // Hexadecimal integers are rare enough to be kept as they are written.
    } else {
        c.p = start;
        c.fail_here("expected a value");
    }
    out += word;
}

void ConstantReader::number(TypeId type, std::string& out) {
    const char* start = c.p;
    if (*c.p == '-' || *c.p == '+') ++c.p;
    while (is(*c.p, IDENTIFIER)) {
        // The sign of an exponent is not an identifier character when it is a plus.
        bool exponent = *c.p == 'e' || *c.p == 'E';
        ++c.p;
        if (exponent && *c.p == '+') ++c.p;
    }
    View text{start, static_cast<size_t>(c.p - start)};
    switch (types[type].kind) {
        case Kind::Integer: integer(type, text, start, out); return;
        case Kind::Floating: floating(type, text, start, out); return;
        default: mismatch(start, "a number", type);
    }
}

void ConstantReader::integer(TypeId type, View text, const char* where, std::string& out) {
    uint64_t bits = types[type].count;
    bool negative = text[0] == '-';
    View digits = text.substr(negative ? 1 : 0);
    if (digits.empty() || text[0] == '+') c.fail_at(where, "expected an integer");
    for (char d : digits) if (!is(d, DIGIT)) c.fail_at(where, "'" + std::string(text) + "' is not an integer");
    while (digits.size() > 1 && digits[0] == '0') digits.remove_prefix(1);
    if (bits > 64 || digits.size() > 19) {  // wider than a machine word: only spelling is put in order
        if (negative && digits != "0") out += '-';
        out += digits;
        return;
    }
    uint64_t magnitude = 0;
    for (char d : digits) magnitude = magnitude * 10 + static_cast<uint64_t>(d - '0');
    uint64_t value = negative ? 0 - magnitude : magnitude;
    uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    if (bits == 1) { out += (value & 1) ? "true" : "false"; return; }
    value &= mask;
    bool below_zero = value >> (bits - 1) & 1;
    int64_t number = static_cast<int64_t>(below_zero ? value | ~mask : value);
    out += std::to_string(number);
}

void ConstantReader::floating(TypeId type, View text, const char* where, std::string& out) {
    const std::string& kind = types[type].printed;
    bool hexadecimal = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    bool machine = kind == "float" || kind == "double";
    if (hexadecimal && machine) {
        View digits = text.substr(2);
        if (digits.size() > 16) c.fail_at(where, "'" + std::string(text) + "' has too many digits");
        uint64_t bits = 0;
        for (char d : digits) {
            int v = d >= '0' && d <= '9' ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
            if (v < 0) c.fail_at(where, "'" + std::string(text) + "' is not a hexadecimal number");
            bits = bits << 4 | static_cast<uint64_t>(v);
        }
        double value;
        memcpy(&value, &bits, sizeof value);
        if (kind == "float" && std::isfinite(value) && static_cast<double>(static_cast<float>(value)) != value)
            c.fail_at(where, "floating point constant invalid for type 'float'");
        char buffer[64];
        if (std::isfinite(value)) {
            // LLVM prints hexadecimal where six decimals would lose something. Where the decimals are exact both
            // spellings are one constant; where they merely round to it, LLVM versions differ: what is written stays.
            snprintf(buffer, sizeof buffer, "%.30e", value);
            char* exponent = strchr(buffer, 'e');
            const char* seventh = strchr(buffer, '.') + 7;
            bool exact = strspn(seventh, "0") == static_cast<size_t>(exponent - seventh);
            snprintf(buffer, sizeof buffer, "%.6e", value);
            if (exact && strtod(buffer, nullptr) == value) { out += buffer; return; }
        }
        snprintf(buffer, sizeof buffer, "0x%016llX", static_cast<unsigned long long>(bits));
        out += buffer;
        return;
    }
    if (hexadecimal) { out += text; return; }
    std::string copy(text);
    char* stop = nullptr;
    double value = strtod(copy.c_str(), &stop);
    if (*stop || copy.find('.') == std::string::npos) c.fail_at(where, "'" + copy + "' is not a floating point constant");
    if (!machine) { out += text; return; }
    if (kind == "float" && static_cast<double>(static_cast<float>(value)) != value)
        c.fail_at(where, "floating point constant invalid for type 'float'");
    char buffer[40];
    snprintf(buffer, sizeof buffer, "%.6e", value);
    if (strtod(buffer, nullptr) != value) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        snprintf(buffer, sizeof buffer, "0x%llX", static_cast<unsigned long long>(bits));
    }
    out += buffer;
}

void ConstantReader::characters(TypeId type, std::string& out) {
    const char* start = c.p - 1;
    View inside = c.string();
    size_t length = 0;
    for (size_t i = 0; i < inside.size(); ++i, ++length) {
        if (inside[i] != '\\') continue;
        auto hex = [&](size_t k) { return k < inside.size() && isxdigit(static_cast<unsigned char>(inside[k])); };
        if (hex(i + 1) && hex(i + 2)) i += 2;
        else if (i + 1 < inside.size() && inside[i + 1] == '\\') i += 1;
    }
    const Type& t = types[type];
    if (t.kind != Kind::Array || types[t.element].printed != "i8") mismatch(start, "a string", type);
    if (t.count != length)
        c.fail_at(start, "a string of " + std::to_string(length) + " bytes cannot have type '" + t.printed + "'");
    out.append(start, c.p);
}

void ConstantReader::elements(TypeId type, char close, std::string& out) {
    const Type& t = types[type];
    const char* start = c.p;
    uint64_t count = 0;
    bool structure = t.kind == Kind::Struct || t.kind == Kind::NamedStruct;
    bool known = !structure || t.kind == Kind::Struct || t.has_body;
    uint64_t expected = structure ? t.members.size() : t.count;
    if (!c.at(close)) do {
        const char* where = (c.skip_space(), c.p);
        TypeId element = types.parse(c);
        if (known && count < expected) {
            TypeId wanted = structure ? t.members[count] : t.element;
            if (wanted != element)
                c.fail_at(where, "element " + std::to_string(count) + " of '" + t.printed + "' has type '" +
                                     types[element].printed + "', not '" + types[wanted].printed + "'");
        }
        if (count++) out += ", ";
        out += types[element].printed;
        out += ' ';
        write(element, out);
    } while (c.eat(','));
    if (known && count != expected)
        c.fail_at(start, std::to_string(count) + " elements cannot have type '" + t.printed + "'");
}

void ConstantReader::aggregate(TypeId type, std::string& out) {
    const char* start = c.p;
    Kind kind = types[type].kind;
    char open = *c.p++;
    bool packed = open == '<' && c.at('{');
    if (packed) ++c.p;
    if (open == '[') {
        if (kind != Kind::Array) mismatch(start, "an array", type);
        out += '[';
        elements(type, ']', out);
        c.need(']');
        out += ']';
    } else if (open == '{' || packed) {
        if (kind != Kind::Struct && kind != Kind::NamedStruct) mismatch(start, "a structure", type);
        out += packed ? "<{ " : "{ ";
        elements(type, '}', out);
        c.need('}');
        if (packed) c.need('>');
        out += packed ? " }>" : " }";
    } else {
        if (kind != Kind::Vector) mismatch(start, "a vector", type);
        out += '<';
        elements(type, '>', out);
        c.need('>');
        out += '>';
    }
}

// word flags (type value, type value to type): one shape serves casts, address computations, comparisons, …
void ConstantReader::expression(TypeId type, View word, const char* where, std::string& out) {
    if (word == "dso_local_equivalent" || word == "no_cfi") {
        references.push_back({name_after_sigil(c, '@'), where});
        out += word;
        out += ' ';
        out += references.back().name.printed('@');
        return;
    }
    if (word == "blockaddress") {
        c.need('(');
        references.push_back({name_after_sigil(c, '@'), where});
        std::string function = references.back().name.printed('@');
        c.need(',');
        Name block = name_after_sigil(c, '%');
        c.need(')');
        out += "blockaddress(" + function + ", " + block.printed('%') + ")";
        return;
    }
    std::string head(word);
    bool inbounds = false;
    while (!c.at('(')) {
        View flag = c.word();
        if (flag.empty()) c.fail_here("expected '(' after '" + std::string(word) + "'");
        inbounds |= flag == "inbounds";
        head += ' ';
        head += flag;
        if (flag == "inrange" && *c.p == '(') { const char* s = c.p; c.balanced(); head.append(s, c.p); }
    }
    c.need('(');
    bool cast = CASTS.count(word), address = word == "getelementptr";
    std::string inside;
    std::string first_value;
    TypeId first_type = NO_TYPE, last_type = NO_TYPE, source_type = NO_TYPE;
    std::vector<std::string> indices;
    int items = 0;
    do {
        if (items++) inside += ", ";
        c.skip_space();
        if (is(*c.p, DIGIT)) { inside += std::to_string(c.number()); continue; }
        if (c.eat_word("inrange")) inside += "inrange ";
        TypeId item = types.parse(c);
        inside += types[item].printed;
        if (c.at(',') || c.at(')')) { source_type = item; continue; }
        inside += ' ';
        std::string value;
        write(item, value);
        inside += value;
        if (first_type == NO_TYPE) { first_type = item; first_value = value; }
        else indices.push_back(value);
        if (cast) {
            c.need_word("to");
            last_type = types.parse(c);
            inside += " to " + types[last_type].printed;
        }
    } while (c.eat(','));
    c.need(')');
    if (first_type == NO_TYPE) c.fail_at(where, "'" + std::string(word) + "' needs a value");
    if (cast) {
        if (last_type != type)
            c.fail_at(where, "this constant has type '" + types[last_type].printed + "', not '" + types[type].printed + "'");
        if (word == "bitcast" && first_type == last_type) { out += first_value; return; }  // LLVM folds it away
    }
    if (word == "splat" && (types[type].kind != Kind::Vector || types[type].element != first_type))
        mismatch(where, "this splat", type);
    if (address) {
        if (!types.pointer_like(first_type) && types[first_type].kind != Kind::Vector)
            c.fail_at(where, "'getelementptr' needs a pointer");
        // LLVM marks an address inside a global that it can see to be inside (ConstantFoldGetElementPtr).
        bool global = first_value[0] == '@', inside_object = !indices.empty() && indices[0] == "0";
        for (size_t k = 1; k < indices.size() && inside_object; ++k) {
            if (source_type == NO_TYPE) { inside_object = false; break; }
            const Type& t = types[source_type];
            bool plain_number = indices[k].find_first_not_of("0123456789") == std::string::npos && indices[k].size() < 10;
            uint64_t index = plain_number ? strtoull(indices[k].c_str(), nullptr, 10) : 0;
            bool listed = t.kind == Kind::Struct || (t.kind == Kind::NamedStruct && t.has_body && t.element == NO_TYPE);
            uint64_t bound = listed ? t.members.size() : t.kind == Kind::Array || t.kind == Kind::Vector ? t.count : 0;
            if (!plain_number || index >= bound) { inside_object = false; break; }
            source_type = listed ? t.members[index] : t.element;
        }
        if (global && !inbounds && inside_object && !types.saw_opaque_pointer) head += " inbounds";
    }
    out += head + " (" + inside + ")";
}

void ConstantReader::skip() {
    c.skip_space();
    switch (*c.p) {
        case '[': case '{': case '<': c.balanced(); return;
        case '@': name_after_sigil(c, '@'); return;
        default: break;
    }
    const char* start = c.p;
    if (is(*c.p, DIGIT) || *c.p == '-' || *c.p == '+') {
        ++c.p;
        while (is(*c.p, IDENTIFIER) || *c.p == '+') ++c.p;
        return;
    }
    View word = c.word();
    if (word.empty()) c.fail_here("expected a value");
    if (word == "c" && *c.p == '"') { c.string(); return; }
    if (SIMPLE.count(word) || word.substr(1, 2) == "0x") return;
    if (!EXPRESSIONS.count(word)) { c.p = start; c.fail_here("expected a value"); }
    if (word == "dso_local_equivalent" || word == "no_cfi") { name_after_sigil(c, '@'); return; }
    while (!c.at('(')) {
        if (c.word().empty()) c.fail_here("expected '('");
        if (*c.p == '(' && c.p[-1] == 'e') { c.balanced(); }  // inrange(…)
    }
    c.balanced();
}

}  // namespace apportion

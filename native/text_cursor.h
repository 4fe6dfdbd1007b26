// A place in a text, and the few ways of moving on that LLVM's assembly language needs.
//
// The text must be followed by a NUL byte (Python's bytes objects are), so that peeking never needs a bound.
#pragma once
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace apportion {

using View = std::string_view;

// What is wrong, and where (a byte offset); the caller turns it into line and column.
struct ParseError : std::runtime_error {
    size_t offset;
    ParseError(const std::string& message, size_t where) : std::runtime_error(message), offset(where) {}
};

enum CharClass : uint8_t { IDENTIFIER = 1, DIGIT = 2, LETTER = 4, BLANK = 8 };

// One table look-up per character is what makes the lexer fast.
struct CharTable {
    uint8_t of[256] = {};
    constexpr CharTable() {
        for (int c = 'a'; c <= 'z'; ++c) of[c] = IDENTIFIER | LETTER;
        for (int c = 'A'; c <= 'Z'; ++c) of[c] = IDENTIFIER | LETTER;
        for (int c = '0'; c <= '9'; ++c) of[c] = IDENTIFIER | DIGIT;
        for (char c : {'_', '.', '-', '$'}) of[static_cast<unsigned char>(c)] = IDENTIFIER;
        for (int c = 128; c < 256; ++c) of[c] = IDENTIFIER;
        for (char c : {' ', '\t', '\n', '\r', '\v', '\f'}) of[static_cast<unsigned char>(c)] = BLANK;
    }
};
inline constexpr CharTable CHARS;

inline bool is(char c, uint8_t classes) { return CHARS.of[static_cast<unsigned char>(c)] & classes; }

class Cursor {
  public:
    explicit Cursor(View text) : begin_(text.data()), p(text.data()), end(text.data() + text.size()) {}

    [[noreturn]] void fail(const std::string& message) const { fail_at(p, message); }
    [[noreturn]] void fail_at(const char* where, const std::string& message) const {
        throw ParseError(message, static_cast<size_t>(where - begin_));
    }
    // A fault at the next token, shown with a little of what stands there.
    [[noreturn]] void fail_here(const std::string& message) {
        skip_space();
        if (p >= end) fail(message + ", but the file ends here");
        const char* stop = p;
        while (stop < end && stop - p < 24 && *stop != '\n') ++stop;
        fail(message + ", not '" + std::string(p, stop) + "'");
    }

    void skip_space() {
        for (;;) {
            while (is(*p, BLANK)) ++p;
            if (*p != ';') return;
            skip_line();
        }
    }
    void skip_blanks() {
        while (*p == ' ' || *p == '\t') ++p;
    }
    void skip_line() {
        const void* newline = memchr(p, '\n', static_cast<size_t>(end - p));
        p = newline ? static_cast<const char*>(newline) : end;
    }

    bool at(char c) {
        skip_space();
        return *p == c && p < end;
    }
    bool eat(char c) {
        if (!at(c)) return false;
        ++p;
        return true;
    }
    void need(char c) {
        if (!eat(c)) fail_here(std::string("expected '") + c + "'");
    }

    // The run of identifier characters here, possibly empty.
    View word() {
        skip_space();
        const char* start = p;
        while (is(*p, IDENTIFIER)) ++p;
        return {start, static_cast<size_t>(p - start)};
    }
    View peek_word() {
        const char* start = p;
        View found = word();
        p = start;
        return found;
    }
    bool eat_word(View expected) {
        const char* start = p;
        if (word() == expected) return true;
        p = start;
        return false;
    }
    void need_word(View expected) {
        if (!eat_word(expected)) fail_here("expected '" + std::string(expected) + "'");
    }

    // A quoted string; returns what stands between the quotes.
    View string() {
        skip_space();
        if (*p != '"') fail_here("expected a string");
        const char* start = ++p;
        const void* close = memchr(p, '"', static_cast<size_t>(end - p));
        if (!close) fail_at(start - 1, "a string is not closed");
        p = static_cast<const char*>(close) + 1;
        return {start, static_cast<size_t>(p - 1 - start)};
    }

    // Past a bracketed run whatever it holds, strings and comments respected.
    void balanced() {
        const char* start = p;
        int depth = 0;
        while (p < end) {
            switch (*p) {
                case '(': case '[': case '{': case '<': ++depth; break;
                case ')': case ']': case '}': case '>':
                    // An arrow or a shift never occurs in this language, so '>' always closes something.
                    if (--depth == 0) { ++p; return; }
                    break;
                case '"': string(); continue;
                case ';': skip_line(); continue;
                default: break;
            }
            ++p;
        }
        fail_at(start, "this bracket is never closed");
    }

    // Digits only: a letter that follows belongs to the next word ('[4x i32]').
    uint64_t number() {
        skip_space();
        const char* start = p;
        uint64_t value = 0;
        while (is(*p, DIGIT)) {
            if (p - start >= 19) fail_at(start, "this number is too large");
            value = value * 10 + static_cast<uint64_t>(*p++ - '0');
        }
        if (p == start) fail_here("expected a number");
        return value;
    }

    size_t offset() const { return static_cast<size_t>(p - begin_); }
    const char* start() const { return begin_; }

  private:
    const char* begin_;

  public:
    const char* p;
    const char* end;
};

// A name after its sigil ('%x', '@"a b"', '%12'): quotes removed, and whether it is a plain number.
struct Name {
    View text;
    bool quoted = false;
    bool numeric() const {
        if (quoted || text.empty()) return false;
        for (char c : text) if (!is(c, DIGIT)) return false;
        return true;
    }
    // LLVM prints quotes only where it must.
    bool needs_quotes() const {
        if (!quoted) return false;
        if (text.empty() || is(text[0], DIGIT)) return true;
        for (unsigned char c : text) if (c >= 128 || !is(static_cast<char>(c), IDENTIFIER)) return true;
        return false;
    }
    std::string printed(char sigil) const {
        std::string out(1, sigil);
        if (needs_quotes()) { out += '"'; out += text; out += '"'; }
        else out += text;
        return out;
    }
};

inline Name name_after_sigil(Cursor& c, char sigil) {
    c.skip_space();
    if (*c.p != sigil) c.fail_here(std::string("expected a name that starts with '") + sigil + "'");
    ++c.p;
    if (*c.p == '"') return {c.string(), true};
    const char* start = c.p;
    uint8_t kind = is(*c.p, DIGIT) ? DIGIT : IDENTIFIER;  // a number ends at the first letter: '%4to'
    while (is(*c.p, kind)) ++c.p;
    if (c.p == start) c.fail_at(start - 1, std::string("'") + sigil + "' must be followed by a name");
    return {{start, static_cast<size_t>(c.p - start)}, false};
}

}  // namespace apportion

// Constants of LLVM's assembly language, read and written back as LLVM prints them.
//
// LLVM makes constants unique, so "type and printed value" is their identity; printing canonically is what
// makes `i8 255` and `i8 -1` one node, as they are one constant.
#pragma once
#include <string>
#include <vector>

#include "llvm_type.h"

namespace apportion {

struct GlobalReference {
    Name name;
    const char* where;
};

class ConstantReader {
  public:
    ConstantReader(Cursor& cursor, TypeTable& types) : c(cursor), types(types) {}

    // The constant of this type that stands here, canonically printed. The view lives until the next call.
    View read(TypeId type);
    // Past the constant that stands here, without looking inside.
    void skip();

    // Every global that was mentioned, for the check that all are defined; the reader only appends.
    std::vector<GlobalReference> references;

    // Whether `word` starts a constant (rather than being an attribute).
    static bool is_value_word(View word);

  private:
    void write(TypeId type, std::string& out);
    bool plain(TypeId type, View& out);
    void number(TypeId type, std::string& out);
    void integer(TypeId type, View digits, const char* where, std::string& out);
    void floating(TypeId type, View text, const char* where, std::string& out);
    void aggregate(TypeId type, std::string& out);
    void elements(TypeId type, char close, std::string& out);
    void characters(TypeId type, std::string& out);
    void expression(TypeId type, View word, const char* where, std::string& out);
    [[noreturn]] void mismatch(const char* where, const std::string& what, TypeId type);

    Cursor& c;
    TypeTable& types;
    std::string scratch_;
    int depth_ = 0;
};

}  // namespace apportion

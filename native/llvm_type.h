// The types of LLVM's assembly language: parsed, made unique, and printed as LLVM prints them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "name_table.h"
#include "text_cursor.h"

namespace apportion {

using TypeId = int32_t;
inline constexpr TypeId NO_TYPE = -1;

enum class Kind : uint8_t {
    Void, Label, Token, Metadata, Integer, Floating, OtherScalar,
    OpaquePointer, Pointer, Array, Vector, Struct, NamedStruct, Function, Target,
};

struct Type {
    Kind kind;
    TypeId element = NO_TYPE;         // pointee, element, or a function's result
    uint64_t count = 0;               // bits, address space, or number of elements
    std::vector<TypeId> members;      // of a struct, or a function's parameters
    std::string printed;              // exactly as LLVM prints it
    bool has_body = false;            // of a named struct
    bool defined = false;             // of a named struct: with a body, or as opaque
    const char* first_use = nullptr;  // of a named struct
    bool variadic = false;            // of a function
    bool scalable = false;            // of a vector
    TypeId pointer = NO_TYPE;         // to this type, address space 0: the common case needs no look-up
    int32_t text = -1;                // its text in the graph, when it has been asked for
};

class TypeTable {
  public:
    TypeTable();

    // The type that starts here. `metadata`, `label` and `void` count.
    TypeId parse(Cursor& c);
    // Whether a type starts here.
    static bool starts(Cursor& c);
    // Past the addrspace(N) that stands here, if one does; N, or 0.
    static uint64_t address_space(Cursor& c);

    void define(const Name& name, Cursor& c);  // the text after '%name = type'
    void check_all_defined(const Cursor& c) const;

    TypeId integer(uint64_t bits);
    TypeId pointer_to(TypeId pointee, uint64_t address_space);
    TypeId opaque_pointer(uint64_t address_space);
    TypeId vector_of(TypeId element, uint64_t count, bool scalable);
    TypeId array_of(TypeId element, uint64_t count);
    TypeId function(TypeId result, const std::vector<TypeId>& parameters, bool variadic);
    TypeId structure(const std::vector<TypeId>& members, bool packed);
    TypeId scalar(View word);  // `float`, `void`, …: NO_TYPE when it is none

    const Type& operator[](TypeId id) const { return *types_[static_cast<size_t>(id)]; }
    Type& operator[](TypeId id) { return *types_[static_cast<size_t>(id)]; }
    bool pointer_like(TypeId id) const {
        return (*this)[id].kind == Kind::Pointer || (*this)[id].kind == Kind::OpaquePointer;
    }

    bool saw_opaque_pointer = false;

  private:
    TypeId base(Cursor& c);
    TypeId unique(Type type);
    std::string joined(const std::vector<TypeId>& types, bool variadic) const;

    std::vector<std::unique_ptr<Type>> types_;  // each in its own place: references stay valid while types are added
    NameTable by_text_;
    std::vector<TypeId> integers_;
    int depth_ = 0;
};

}  // namespace apportion

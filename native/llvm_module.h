// The state of one build, shared by the parts of the parser: module level, function level, instructions.
#pragma once
#include <array>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "llvm_constant.h"
#include "llvm_graph.h"
#include "name_table.h"

namespace apportion {

enum NodeType : uint8_t { INSTRUCTION = 0, VARIABLE = 1, CONSTANT = 2, TYPE_NODE = 3 };
enum Flow : uint8_t { CONTROL = 0, DATA = 1, CALL = 2, TYPE_FLOW = 3 };

// A local name: an argument, the result of an instruction, or a block.
struct Symbol {
    // A block that was branched to but not met yet is a BlockToCome.
    enum class Role : uint8_t { Unknown, Argument, Value, Block, BlockToCome } role = Role::Unknown;
    bool defined() const { return role != Role::Unknown && role != Role::BlockToCome; }
    Name name;
    const char* first_use = nullptr;
    TypeId type = NO_TYPE;
    int32_t node = -1;        // the defining instruction; of a block, its number in the function
    int32_t full_text = -1;   // "type name" as a string, once made
    TypeId pointee = NO_TYPE; // what an opaque pointer points to, when known
    TypeId content = NO_TYPE; // what the pointers kept behind this pointer point to, when known
};

struct Operand {
    enum class Role : uint8_t { None, Local, Constant } role = Role::None;
    TypeId type = NO_TYPE;
    int32_t index = -1;          // of the symbol, or of the constant
    TypeId pointee = NO_TYPE;    // what this use says that a pointer points to
};

struct Global {
    enum class Role : uint8_t { Unknown, Function, Variable, Alias } role = Role::Unknown;
    Name name;
    const char* first_use = nullptr;
    int32_t function = -1;      // number in the function list
    int32_t constant = -1;      // number in the constant list, once used as one
    TypeId value_type = NO_TYPE;
    View definition;
    int32_t aliasee = -1;       // the global that an alias stands for
};

struct Constant {
    TypeId type;
    std::string text;       // "type value"; empty for a global
    int32_t global = -1;
};

struct Use { int32_t value, instruction, position; };

struct Block {
    int32_t symbol, first = -1, last = -1;
    uint32_t successors_begin = 0, successors_end = 0;
};

struct FunctionEnds {
    int32_t entry = -1;
    std::vector<int32_t> exits;
};

// The intrinsics whose five-argument form LLVM upgrades when it reads old IR.
bool memory_intrinsic(View name);

// One parsed instruction, reused from one to the next.
struct Instruction {
    View opcode;
    int32_t opcode_text = -1;         // the opcode in the string table
    std::vector<Operand> operands;
    std::vector<int32_t> successors;  // symbols of blocks
    TypeId result = NO_TYPE;          // NO_TYPE: not worked out; void: none
    bool has_result = false;
    bool terminator = false;
    bool call = false;             // a plain call: the only kind that the reference joins to its callee
    int32_t callee = -1;              // global called directly
    int32_t callee_behind = -1;       // global called through a cast
    TypeId result_pointee = NO_TYPE;  // of an opaque pointer made here
    int32_t loaded_from = -1, stored_symbol = -1, stored_to = -1;  // symbols, for pointers kept in memory
    void clear();
};

class ModuleReader {
  public:
    ModuleReader(View text, const GraphOptions& options);
    GraphArrays read();

    static constexpr size_t OPCODE_COUNT = 72;

  private:
    // -- llvm_module.cpp: the top level
    void select_functions();
    void top_level();
    void assignment();
    void global_definition(const Name& name, const char* start);
    void metadata_definition();
    void skip_metadata();
    void skip_function_body();
    void function_header(bool definition);
    void skip_header_rest(bool definition, int32_t function);
    int32_t global_of(const Name& name, const char* where);
    void check_references();
    void declare_late(int32_t global);
    void finish();
    void add_calls();
    void add_constants();
    void profile();
    View metadata(uint64_t number) const;

    // -- llvm_function.cpp: one function
    void function_body(int32_t function);
    int32_t symbol_of(const Name& name, const char* where);
    int32_t define(const Name& name, Symbol::Role role, TypeId type, const char* where);
    void start_block(int32_t symbol);
    bool block_label();
    void add_instruction(const char* start);
    void add_operand(const Operand& operand, int32_t node, int32_t position);
    void finish_function(int32_t function);
    void add_variables_per_definition();
    void resolve_pointees();
    TypeId recovered(TypeId type, TypeId pointee, TypeId content);
    Name next_slot();

    // -- llvm_instruction.cpp: the grammar of each instruction
    void instruction();
    void alignment();
    void trailing();
    void attachment();
    Operand typed_value(bool attributes = false);
    Operand value(TypeId type);
    void parameter_attributes();
    void flags();
    int32_t label();
    int32_t block_named();
    void call(bool invoke, bool callbr);
    void bundles();
    bool another_operand();
    void memory_order(View opcode);
    TypeId element_at(TypeId type, const std::vector<Operand>& indices, size_t from);
    TypeId same_shape(TypeId shape, TypeId element);
    Operand local(const Name& name, TypeId type, const char* where);
    Operand constant(TypeId type);
    Operand pad();
    int32_t constant_index(TypeId type, View text);
    void hint(Operand& pointer, TypeId pointee);

    // -- llvm_nodes.cpp: writing the graph
    int32_t add_node(NodeType type, int32_t text, int32_t full_text, int32_t function, int32_t block);
    void add_edge(Flow flow, int32_t position, int32_t source, int32_t target);
    int32_t text_of(View text);              // a string of the table, each kept once
    int32_t new_string(View text);           // a string of the table, kept again
    int32_t text_of_type(TypeId type);
    int32_t value_text(TypeId type, NodeType kind);
    void add_type(TypeId type, int32_t node);
    int32_t type_node(TypeId type);
    int32_t fresh_type_node(TypeId type);
    int32_t variable_full_text(Symbol& symbol, TypeId type);

    View text_;
    const GraphOptions& options_;
    Cursor c;
    TypeTable types;
    ConstantReader constants_reader;
    GraphArrays out;

    NameTable text_ids_;
    std::deque<std::string> kept_;   // strings made here that views point to

    std::vector<Global> globals_;
    NameTable global_ids_;
    std::vector<Constant> constants_;
    NameTable constant_ids_;
    std::vector<Use> constant_uses_;
    std::vector<FunctionEnds> ends_;
    std::vector<std::pair<int32_t, int32_t>> calls_;   // instruction node, global
    std::vector<int32_t> late_declarations_;           // globals whose upgraded declaration LLVM appends
    std::unordered_map<uint64_t, View> metadata_;
    std::vector<std::pair<uint64_t, const char*>> metadata_uses_;
    std::vector<std::pair<int32_t, uint64_t>> profiles_;      // node, metadata number
    std::vector<std::pair<int32_t, uint64_t>> entry_counts_;  // function, metadata number
    View module_flags_;
    std::unordered_set<View> selected_;
    bool selecting_ = false;
    int32_t blocks_ = 0;
    std::string key_;
    struct RecentConstant { TypeId type = NO_TYPE; uint32_t size = 0; uint64_t text = 0; int32_t index = -1; };
    std::array<RecentConstant, 512> recent_constants_;
    std::array<int32_t, OPCODE_COUNT> opcode_texts_;

    // the function being read
    int32_t function_ = -1;
    TypeId function_result_ = NO_TYPE;
    std::vector<Symbol> symbols_;
    NameTable named_;
    std::vector<int32_t> numbered_;
    uint64_t slot_ = 0;
    std::vector<Block> block_list_;
    std::vector<int32_t> successors_;
    bool open_ = false;
    std::vector<int32_t> arguments_;
    std::vector<Use> argument_uses_;     // symbol, instruction, position
    std::vector<Use> definition_uses_;   // likewise, when there is one variable per definition
    std::vector<std::pair<int32_t, int32_t>> producers_;  // symbol, variable node
    struct Pending { int32_t node, symbol; TypeId type, hint; };
    std::vector<Pending> pending_;       // variables whose pointer type may still be recovered
    std::vector<std::pair<int32_t, int32_t>> kept_pointers_;  // symbol of the place, symbol of the pointer
    Instruction now;
    std::vector<TypeId> parameters_;     // of the call being read
    const char* instruction_end_ = nullptr;

    std::unordered_map<TypeId, int32_t> type_nodes_;
    std::unordered_map<TypeId, int32_t> structs_being_built_;
};

}  // namespace apportion

// The five data-flow analyses over the flat arrays of a program graph.
//
// `analysis_of` builds what one analysis needs of one graph; its `run` then answers many roots in one call,
// writing labels as bits. Nothing here knows Python, so all of it runs without the interpreter's lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace apportion {

enum NodeType : uint8_t { INSTRUCTION = 0, VARIABLE = 1, CONSTANT = 2 };
enum Flow : uint8_t { CONTROL = 0, DATA = 1, CALL = 2 };
enum class Kind { reachability, dominance, datadep, liveness, subexpressions };
enum class Mode { exact, reference };

// A program graph as its owner holds it; the pointers must outlive every analysis made of them.
struct GraphView {
    int32_t nodes = 0;
    int64_t edges = 0;
    const uint8_t* node_type = nullptr;
    const int32_t* node_text = nullptr;       // string number
    const int32_t* node_full_text = nullptr;  // string number, -1: none
    const int32_t* node_function = nullptr;
    const uint8_t* edge_flow = nullptr;
    const int32_t* edge_position = nullptr;
    const int32_t* source = nullptr;
    const int32_t* target = nullptr;
    const uint8_t* string_data = nullptr;
    const int64_t* string_offsets = nullptr;

    std::string_view string(int32_t number) const {
        return {reinterpret_cast<const char*>(string_data) + string_offsets[number],
                size_t(string_offsets[number + 1] - string_offsets[number])};
    }
};

// Neighbours of every node in one array, in the order of the graph's edges.
struct Adjacency {
    std::vector<int64_t> first;    // (nodes + 1): neighbours of v lie in [first[v], first[v + 1])
    std::vector<int32_t> node;     // (edges)
    std::vector<int64_t> edge;     // (edges) the graph's edge that each entry stands for

    const int32_t* begin(int32_t v) const { return node.data() + first[v]; }
    const int32_t* end(int32_t v) const { return node.data() + first[v + 1]; }
    int64_t degree(int32_t v) const { return first[v + 1] - first[v]; }
};

enum class Direction { forward, backward };
Adjacency adjacency_of(const GraphView& graph, Flow flow, Direction direction);
// The entries of `a`, then those of `b`, for every node.
Adjacency joined(const Adjacency& a, const Adjacency& b);

// Counts of queue entries double at every diamond; beyond this they stay here.
constexpr int64_t UNCOUNTABLE = std::numeric_limits<int64_t>::max();
inline int64_t saturating_add(int64_t a, int64_t b) { return a > UNCOUNTABLE - b ? UNCOUNTABLE : a + b; }

// Where the answers of many roots go: one entry, and one row of bits (node v is bit v % 8 of byte v / 8), per root.
struct Rows {
    int64_t* steps;
    int64_t* active;
    uint8_t* failed;  // 1: the analysis gave up on this root; Analysis::failure says how
    uint8_t* bits;
    size_t row_bytes;

    uint8_t* row(size_t i) const { return bits + i * row_bytes; }
};
inline void set_bit(uint8_t* row, int32_t v) { row[v >> 3] = uint8_t(row[v >> 3] | (1u << (v & 7))); }

class Analysis {
public:
    virtual ~Analysis() = default;
    // All roots that the analysis can start from, ascending.
    std::vector<int32_t> eligible;
    // Why no root of this graph can be answered; empty when they can.
    std::string init_error;
    // Why a single root came to nothing.
    virtual std::string failure() const { return {}; }
    // Every root must be eligible; the rows must be zero.
    virtual void run(const int32_t* roots, size_t count, const Rows& rows) = 0;
};

std::unique_ptr<Analysis> analysis_of(const GraphView& graph, Kind kind, Mode mode);

// One maker per file.
std::unique_ptr<Analysis> walk_analysis(const GraphView& graph, Kind kind, Mode mode);
std::unique_ptr<Analysis> dominance_analysis(const GraphView& graph, Mode mode);
std::unique_ptr<Analysis> liveness_analysis(const GraphView& graph, Mode mode);
std::unique_ptr<Analysis> subexpression_analysis(const GraphView& graph, Mode mode);

// Instructions other than node 0, which stands for the world outside the module.
std::vector<int32_t> instructions_of(const GraphView& graph);

}  // namespace apportion

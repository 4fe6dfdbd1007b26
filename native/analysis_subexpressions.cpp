// Common subexpressions: which instructions compute what the root computes.
#include "analysis.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace apportion {
namespace {

struct Operand {
    int32_t position;
    int32_t node;
};

std::vector<Operand> operands_of(const GraphView& graph, const Adjacency& operands, int32_t v) {
    std::vector<Operand> found;
    for (int64_t i = operands.first[v]; i < operands.first[v + 1]; ++i)
        found.push_back({graph.edge_position[operands.edge[size_t(i)]], operands.node[size_t(i)]});
    std::stable_sort(found.begin(), found.end(),
                     [](const Operand& a, const Operand& b) { return a.position < b.position; });
    return found;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_commutative(std::string_view opcode) {
    return is_one_of(opcode, {"add", "fadd", "mul", "fmul", "and", "or", "xor"});
}

void append(std::string& key, int32_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); }

// Classes of instructions that are the same expression.
class Subexpressions : public Analysis {
public:
    void run(const int32_t* roots, size_t count, const Rows& rows) override {
        for (size_t i = 0; i < count; ++i) {
            const std::vector<int32_t>& members = classes_[size_t(class_of_[size_t(roots[i])])];
            rows.steps[i] = steps(roots[i]);
            rows.active[i] = int64_t(members.size());
            for (const int32_t v : members) set_bit(rows.row(i), v);
        }
    }

protected:
    explicit Subexpressions(const GraphView& graph)
        : graph_(graph), operands_(adjacency_of(graph, DATA, Direction::backward)) {
        class_of_.assign(size_t(graph.nodes), -1);
    }

    virtual int64_t steps(int32_t root) const = 0;

    // Put v among the instructions with this key; the number of its class.
    int32_t classify(int32_t v, std::string key) {
        const auto [at, is_new] = class_by_key_.emplace(std::move(key), int32_t(classes_.size()));
        if (is_new) classes_.emplace_back();
        classes_[size_t(at->second)].push_back(v);
        return class_of_[size_t(v)] = at->second;
    }

    void find_eligible() {
        for (const int32_t v : instructions_of(graph_))
            if (class_of_[size_t(v)] >= 0 && classes_[size_t(class_of_[size_t(v)])].size() > 1)
                eligible.push_back(v);
        class_by_key_.clear();
    }

    std::string_view opcode(int32_t v) const { return graph_.string(graph_.node_text[v]); }

    GraphView graph_;
    Adjacency operands_;
    std::vector<int32_t> class_of_;  // by node; -1: in none
    std::vector<std::vector<int32_t>> classes_;

private:
    std::unordered_map<std::string, int32_t> class_by_key_;
};

// The reference: same opcode and the same operand nodes, whatever the instruction does and in whichever function.
class ReferenceSubexpressions final : public Subexpressions {
public:
    explicit ReferenceSubexpressions(const GraphView& graph) : Subexpressions(graph) {
        for (const int32_t v : instructions_of(graph)) {
            if (operands_.degree(v) == 0) continue;
            std::vector<int32_t> nodes;
            for (const Operand& operand : operands_of(graph, operands_, v)) nodes.push_back(operand.node);
            if (is_commutative(opcode(v))) std::sort(nodes.begin(), nodes.end());
            std::string key(opcode(v));
            key.push_back('\0');
            for (const int32_t node : nodes) append(key, node);
            classify(v, std::move(key));
        }
        find_eligible();
    }

private:
    int64_t steps(int32_t) const override { return 2; }
};

// Parts of a printed instruction that the graph's edges do not carry.

constexpr std::string_view BLANKS = " \t\n";

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(BLANKS);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(BLANKS) - first + 1);
}

// Split at commas that stand in no bracket or quotation, leaving out metadata (`!dbg !7`).
std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> parts;
    size_t start = 0, depth = 0;
    bool quoted = false;
    for (size_t i = 0; i <= text.size(); ++i) {
        const char c = i < text.size() ? text[i] : ',';
        if (i < text.size() && c == '"') quoted = !quoted;
        if (quoted && i < text.size()) continue;
        if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
        if ((c == ')' || c == ']' || c == '}' || c == '>') && depth > 0) --depth;
        if (c != ',' || (depth > 0 && i < text.size())) continue;
        const std::string_view part = trimmed(text.substr(start, i - start));
        if (part.empty() || part[0] != '!') parts.push_back(part);
        start = i + 1;
    }
    return parts;
}

// `%x = add i32 1, 2` without `%x = `.
std::string_view right_side(std::string_view text) {
    size_t from = 0;
    if (text.substr(0, 2) == "%\"") from = text.find('"', 2);
    const size_t at = from == text.npos ? from : text.find(" = ", from);
    return at == text.npos ? text : text.substr(at + 3);
}

std::string_view take_word(std::string_view& text) {
    text = trimmed(text);
    const std::string_view word = text.substr(0, text.find_first_of(BLANKS));
    text.remove_prefix(word.size());
    return word;
}

struct Predicate {
    std::string_view name, mirrored;  // a < b is b > a; the same name: the operands may change places
};
constexpr std::array<Predicate, 22> PREDICATES{{
    {"eq", "eq"},   {"ne", "ne"},   {"ult", "ugt"}, {"ule", "uge"}, {"slt", "sgt"}, {"sle", "sge"}, {"ugt", "ult"},
    {"uge", "ule"}, {"sgt", "slt"}, {"sge", "sle"}, {"oeq", "oeq"}, {"one", "one"}, {"ord", "ord"}, {"ueq", "ueq"},
    {"une", "une"}, {"uno", "uno"}, {"olt", "ogt"}, {"ole", "oge"}, {"ogt", "olt"}, {"oge", "ole"},
    {"true", "true"}, {"false", "false"},
}};

// Values numbered by what they are: two instructions of one function are the same if their opcode, the details printed
// with it (predicate, types, indices) and the values of their operands are. Instructions that read or write memory,
// call, choose by control flow, or make a new object have each a value of their own, and so has one whose details
// are needed but absent from the graph. Flags such as nsw and fast are ignored: where both are defined, they agree.
class ExactSubexpressions final : public Subexpressions {
public:
    explicit ExactSubexpressions(const GraphView& graph) : Subexpressions(graph) {
        value_.resize(size_t(graph.nodes));
        height_.assign(size_t(graph.nodes), 0);
        for (int32_t v = 0; v < graph.nodes; ++v) value_[size_t(v)] = v;
        for (const int32_t v : data_order()) {
            if (graph.node_type[v] == VARIABLE) {
                // A use stands for its definition.
                if (operands_.degree(v) != 1) continue;
                const int32_t producer = *operands_.begin(v);
                value_[size_t(v)] = value_[size_t(producer)];
                height_[size_t(v)] = height_[size_t(producer)] + 1;
            } else if (graph.node_type[v] == INSTRUCTION && v != 0) {
                number(v);
            }
        }
        for (std::vector<int32_t>& members : classes_) std::sort(members.begin(), members.end());
        find_eligible();
    }

private:
    // Edges up to the farthest operand whose value is its own, and back down to the other members.
    int64_t steps(int32_t root) const override { return 2 * int64_t(height_[size_t(root)]); }

    // Every node after its operands; what lies on a ring of data (through a phi) comes last, phis leading.
    std::vector<int32_t> data_order() const {
        const Adjacency next = adjacency_of(graph_, DATA, Direction::forward);
        std::vector<int64_t> missing(size_t(graph_.nodes));
        std::vector<int32_t> order;
        // A value of its own waits for no operand, which also opens every ring that a well-formed program has.
        for (int32_t v = 0; v < graph_.nodes; ++v) {
            const bool waits = graph_.node_type[v] != INSTRUCTION || is_pure(opcode(v));
            missing[size_t(v)] = waits ? operands_.degree(v) : 0;
            if (missing[size_t(v)] == 0) order.push_back(v);
        }
        for (size_t k = 0; k < order.size(); ++k)
            for (const int32_t* w = next.begin(order[k]); w != next.end(order[k]); ++w)
                if (missing[size_t(*w)] > 0 && --missing[size_t(*w)] == 0) order.push_back(*w);
        return order;
    }

    static bool is_binary(std::string_view opcode) {
        return is_commutative(opcode) || is_one_of(opcode, {"sub", "fsub", "udiv", "sdiv", "fdiv", "urem", "srem",
                                                            "frem", "shl", "lshr", "ashr"});
    }
    static bool is_cast(std::string_view opcode) {
        return is_one_of(opcode, {"trunc", "zext", "sext", "fptrunc", "fpext", "uitofp", "sitofp", "fptoui",
                                  "fptosi", "inttoptr", "ptrtoint", "ptrtoaddr", "bitcast", "addrspacecast"});
    }
    static bool is_comparison(std::string_view opcode) { return opcode == "icmp" || opcode == "fcmp"; }
    static bool is_pure(std::string_view opcode) { return operand_count(opcode) != 0; }

    // How many operands a pure instruction has (at least, for getelementptr and shufflevector); 0: it is not pure.
    static size_t operand_count(std::string_view opcode) {
        if (is_binary(opcode) || is_comparison(opcode)) return 2;
        if (is_cast(opcode) || is_one_of(opcode, {"fneg", "extractvalue", "getelementptr"})) return 1;
        if (is_one_of(opcode, {"insertvalue", "extractelement", "shufflevector"})) return 2;
        return is_one_of(opcode, {"select", "insertelement"}) ? 3 : 0;
    }

    void number(int32_t v) {
        const std::string_view name = opcode(v);
        const size_t least = operand_count(name);
        if (least == 0) return;
        const int32_t text_number = graph_.node_full_text[v];
        const std::string_view text =
            text_number < 0 ? std::string_view{} : right_side(graph_.string(text_number));
        std::vector<Operand> operands = operands_of(graph_, operands_, v);
        std::vector<int32_t> values;
        for (const Operand& operand : operands) {
            values.push_back(value_[size_t(operand.node)]);
            height_[size_t(v)] = std::max(height_[size_t(v)], height_[size_t(operand.node)] + 1);
        }
        std::string key(name);
        key.push_back('\0');
        append(key, graph_.node_function[v]);
        if (!has_all(operands, least)) {
            // A function among the operands is no node: compare what is printed.
            if (text.empty()) return;
            for (const std::string_view part : split(text)) key.append(part).push_back(',');
        } else if (is_comparison(name)) {
            const Predicate predicate = predicate_of(text);
            if (predicate.name.empty()) return;
            const bool turn = predicate.name == predicate.mirrored ? values[0] > values[1]
                                                                   : predicate.mirrored < predicate.name;
            if (turn) std::swap(values[0], values[1]);
            key.append(std::min(predicate.name, predicate.mirrored));
        } else if (is_commutative(name)) {
            std::sort(values.begin(), values.end());
        } else if (needs_details(name, operands.size())) {
            if (text.empty()) return;
            key.append(details_of(name, text));
        }
        key.push_back('\0');
        for (const int32_t value : values) append(key, value);
        // The first member's own number stands for the value of all.
        value_[size_t(v)] = classes_[size_t(classify(v, std::move(key)))].front();
    }

    static bool has_all(const std::vector<Operand>& operands, size_t least) {
        for (size_t i = 0; i < operands.size(); ++i)
            if (operands[i].position != int32_t(i)) return false;
        return operands.size() >= least;
    }

    static bool needs_details(std::string_view opcode, size_t operands) {
        if (opcode == "shufflevector") return operands == 2;  // since LLVM 11 the mask is no operand
        return is_cast(opcode) || is_one_of(opcode, {"getelementptr", "extractvalue", "insertvalue"});
    }

    static std::string details_of(std::string_view opcode, std::string_view text) {
        const std::vector<std::string_view> parts = split(text);
        if (is_cast(opcode)) {
            const size_t at = parts[0].rfind(" to ");
            return std::string(at == text.npos ? parts[0] : parts[0].substr(at + 4));
        }
        if (opcode == "getelementptr") {
            std::string_view type = parts[0];
            take_word(type);
            for (std::string_view rest = type; is_one_of(take_word(rest), {"inbounds", "nuw", "nusw"}); type = rest) {
            }
            return std::string(trimmed(type));
        }
        // extractvalue agg, 0, 1 | insertvalue agg, value, 0 | shufflevector a, b, mask
        std::string details;
        for (size_t i = opcode == "extractvalue" ? 1 : 2; i < parts.size(); ++i)
            details.append(parts[i]).push_back(',');
        return details;
    }

    // `icmp slt …`, `fcmp fast olt …`: the first word that is a predicate.
    static Predicate predicate_of(std::string_view text) {
        take_word(text);
        for (std::string_view word = take_word(text); !word.empty(); word = take_word(text))
            for (const Predicate& predicate : PREDICATES)
                if (predicate.name == word) return predicate;
        return {};
    }

    std::vector<int32_t> value_;
    std::vector<int32_t> height_;
};

}  // namespace

std::unique_ptr<Analysis> subexpression_analysis(const GraphView& graph, Mode mode) {
    if (mode == Mode::reference) return std::make_unique<ReferenceSubexpressions>(graph);
    return std::make_unique<ExactSubexpressions>(graph);
}

}  // namespace apportion

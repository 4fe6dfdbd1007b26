// The features, edges and segments of a serialized HloModuleProto, as program/hlo/module.py describes them.
// A message is walked where it lies; nothing is copied but the numbers of one instruction at a time.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;

namespace {

constexpr size_t FEATURES = 140;
// XLA's PrimitiveType in the order of the indicators.
constexpr int ELEMENT_TYPES[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17};
constexpr const char* SEGMENT_WORDS[] = {"cluster", "while", "cond"};

struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One field: a number for a varint, a text for everything else.
struct Field {
    uint64_t number = 0;
    bool is_text = false;
    int64_t value = 0;
    std::string_view text;

    int64_t as_number() const {
        if (is_text) throw Malformed("a text stands where a number should");
        return value;
    }
    std::string_view as_text() const {
        if (!is_text) throw Malformed("a number stands where a text or a message should");
        return text;
    }
};

class Message {
  public:
    explicit Message(std::string_view data) : data_(data) {}

    // The next field; false at the end.
    bool next(Field& field) {
        if (place_ >= data_.size()) return false;
        uint64_t key = varint();
        field.number = key >> 3;
        field.is_text = true;
        uint64_t size = 0;
        switch (key & 7) {
            case 0:
                field.is_text = false;
                field.value = static_cast<int64_t>(varint());
                return true;
            case 2: size = varint(); break;
            case 1: size = 8; break;
            case 5: size = 4; break;
            default:
                throw Malformed("byte " + std::to_string(place_) + " is no field of a protocol buffer");
        }
        if (field.number == 0 || size > data_.size() - place_)
            throw Malformed("the message ends before its field " + std::to_string(field.number) + " at byte " +
                            std::to_string(place_) + " does");
        field.text = data_.substr(place_, size);
        place_ += size;
        return true;
    }

    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0; shift <= 63; shift += 7) {
            if (place_ >= data_.size()) break;
            auto byte = static_cast<uint8_t>(data_[place_++]);
            if (shift == 63 && byte > 1) break;  // more than 64 bits
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
        throw Malformed("a number ends in the middle at byte " + std::to_string(place_));
    }

    bool at_end() const { return place_ >= data_.size(); }

  private:
    std::string_view data_;
    size_t place_ = 0;
};

using Values = std::vector<int64_t>;

void append(Values& values, const Field& field) {
    if (!field.is_text) {
        values.push_back(field.value);
        return;
    }
    Message packed(field.text);
    while (!packed.at_end()) values.push_back(static_cast<int64_t>(packed.varint()));
}

void leading(float* place, size_t count, const Values& values) {
    for (size_t i = 0; i < std::min(count, values.size()); ++i) place[i] = static_cast<float>(values[i]);
}

// The first values, then their sum and product; nothing where there are none.
void sequence(float* place, size_t count, const Values& values) {
    if (values.empty()) return;
    leading(place, count, values);
    double sum = 0, product = 1;
    __int128 exact = 1;
    bool fits = true;
    for (int64_t value : values) {
        sum += static_cast<double>(value);
        product *= static_cast<double>(value);
        fits = fits && !__builtin_mul_overflow(exact, static_cast<__int128>(value), &exact);
    }
    place[count] = static_cast<float>(sum);
    place[count + 1] = static_cast<float>(fits ? static_cast<double>(exact) : product);
}

void shape_features(std::string_view shape, float* row) {
    Values dimensions, layout;
    int64_t element = 0;
    size_t parts = 0;
    std::string_view layout_text;
    Field field;
    for (Message message(shape); message.next(field);) {
        if (field.number == 2) element = field.as_number();
        if (field.number == 3) append(dimensions, field);
        if (field.number == 4) ++parts;
        if (field.number == 5) layout_text = field.as_text();
    }
    for (Message message(layout_text); message.next(field);)
        if (field.number == 1) append(layout, field);
    for (size_t i = 0; i < std::size(ELEMENT_TYPES); ++i) row[2 + i] = element == ELEMENT_TYPES[i];
    sequence(row + 21, 6, dimensions);
    row[29] = static_cast<float>(parts);
    leading(row + 134, 6, layout);
}

// Of the repeated messages in field `outer` of a text: the numbers of each in fields 1 to `count`, field by field.
class Columns {
  public:
    explicit Columns(size_t count) : values_(count) {}

    void add(std::string_view text) {
        for (Values& values : values_) values.push_back(0);
        Field field;
        for (Message message(text); message.next(field);)
            if (field.number >= 1 && field.number <= values_.size()) values_[field.number - 1].back() = field.as_number();
    }
    void add_all(std::string_view text) {
        Field field;
        for (Message message(text); message.next(field);)
            if (field.number == 1 && field.is_text) add(field.text);
    }
    const Values& operator[](size_t number) const { return values_[number - 1]; }

  private:
    std::vector<Values> values_;
};

void window_features(std::string_view text, float* row) {
    Columns columns(7);
    columns.add_all(text);
    for (size_t number = 1; number <= 6; ++number) sequence(row + 37 + 8 * (number - 1), 6, columns[number]);
    leading(row + 85, 6, columns[7]);
    int64_t reversed = 0;
    for (int64_t value : columns[7]) reversed += value;
    row[91] = static_cast<float>(reversed);
    row[92] = static_cast<float>(static_cast<int64_t>(columns[7].size()) - reversed);
}

void convolution_features(std::string_view text, float* row) {
    int64_t one[11] = {};
    Values input, kernel;
    Field field;
    for (Message message(text); message.next(field);) {
        if (field.number == 11) append(input, field);
        else if (field.number == 6) append(kernel, field);
        else if (field.number < 11 && field.number != 5) one[field.number] = field.as_number();
    }
    row[93] = static_cast<float>(one[7]);
    row[94] = static_cast<float>(one[8]);
    leading(row + 95, 4, input);
    row[99] = static_cast<float>(one[3]);
    row[100] = static_cast<float>(one[4]);
    leading(row + 101, 4, kernel);
    row[105] = static_cast<float>(one[9]);
    row[106] = static_cast<float>(one[10]);
}

struct Instruction {
    int64_t identity = 0;
    std::string_view opcode;
    Values operands, called;
};

Instruction read_instruction(std::string_view text, int64_t root, float* row) {
    for (int place : {28, 44, 52, 60, 68, 76, 84, 112, 116, 120, 124, 128, 132}) row[place] = 1;  // products of none
    Instruction found;
    std::string_view shape, window, convolution, padding;
    bool has_window = false;
    Values dimensions, sizes;
    Columns slices(3);
    bool sliced = false;
    Field field;
    for (Message message(text); message.next(field);) {
        switch (field.number) {
            case 2: found.opcode = field.as_text(); break;
            case 3: shape = field.as_text(); break;
            case 9: row[30] = static_cast<float>(field.as_number()); break;
            case 14: append(dimensions, field); break;
            case 15: window = field.as_text(), has_window = true; break;
            case 16: convolution = field.as_text(); break;
            case 17:
                if (field.is_text) slices.add(field.text), sliced = true;
                break;
            case 20: append(sizes, field); break;
            case 21: padding = field.as_text(); break;
            case 35: found.identity = field.as_number(); break;
            case 36: append(found.operands, field); break;
            case 38: append(found.called, field); break;
            case 50: row[107] = static_cast<float>(field.as_number()); break;
            case 58: row[108] = static_cast<float>(field.as_number()); break;
            case 60: row[133] = static_cast<float>(field.as_number()); break;
            default: break;
        }
    }
    shape_features(shape, row);
    row[0] = found.identity == root;
    leading(row + 31, 6, dimensions);
    if (has_window) window_features(window, row);
    if (!convolution.empty()) convolution_features(convolution, row);
    if (sliced) {
        sequence(row + 109, 2, slices[1]);
        sequence(row + 113, 2, slices[3]);
        sequence(row + 117, 2, slices[2]);
    }
    sequence(row + 121, 2, sizes);
    if (!padding.empty()) {
        Columns columns(2);
        columns.add_all(padding);
        sequence(row + 125, 2, columns[1]);
        sequence(row + 129, 2, columns[2]);
    }
    return found;
}

// What a module is made of, before it becomes arrays.
struct Module {
    std::string_view name;
    std::vector<std::string_view> opcodes;
    std::vector<float> rows;
    std::vector<std::pair<int64_t, int64_t>> edges;
    std::vector<int64_t> splits{0};
};

class ModuleReader {
  public:
    Module read(std::string_view data) {
        Message outer(data);
        Field field;
        std::string_view inside;
        bool wrapped = false, computations = false;
        while (outer.next(field)) {
            if (field.number == 1) wrapped = field.is_text, inside = field.text;
            computations = computations || field.number == 3;
        }
        for (Message message(wrapped && !computations ? inside : data); message.next(field);) {
            if (!field.is_text) continue;
            if (field.number == 1) module_.name = field.text;
            if (field.number == 3) read_computation(field.text);
        }
        if (module_.opcodes.empty()) throw Malformed("it has no instructions");
        auto count = static_cast<int64_t>(module_.opcodes.size());
        if (module_.splits.back() < count) module_.splits.push_back(count);
        find_edges();
        return std::move(module_);
    }

  private:
    void read_computation(std::string_view text) {
        int64_t identity = 0, root = 0;
        std::string_view title;
        Field field;
        for (Message message(text); message.next(field);) {
            if (field.number == 1) title = field.is_text ? field.text : std::string_view();
            if (field.number == 5) identity = field.as_number();
            if (field.number == 6) root = field.as_number();
        }
        roots_[identity] = root;
        for (Message message(text); message.next(field);) {
            if (field.number != 2 || !field.is_text) continue;
            module_.rows.resize(module_.rows.size() + FEATURES);
            Instruction found = read_instruction(field.text, root, &*(module_.rows.end() - FEATURES));
            index_[found.identity] = static_cast<int64_t>(module_.opcodes.size());
            module_.opcodes.push_back(found.opcode);
            instructions_.push_back(std::move(found));
        }
        for (const char* word : SEGMENT_WORDS)
            if (title.find(word) != std::string_view::npos) {
                module_.splits.push_back(static_cast<int64_t>(module_.opcodes.size()));
                break;
            }
    }

    // Operands, each once, and the roots of the computations that an instruction calls.
    void find_edges() {
        for (Instruction& one : instructions_) {
            std::sort(one.operands.begin(), one.operands.end());
            one.operands.erase(std::unique(one.operands.begin(), one.operands.end()), one.operands.end());
            int64_t consumer = index_.at(one.identity);
            for (int64_t operand : one.operands) module_.edges.emplace_back(consumer, found(index_, operand, one));
            for (int64_t called : one.called)
                module_.edges.emplace_back(consumer, found(index_, found(roots_, called, one), one));
        }
        std::sort(module_.edges.begin(), module_.edges.end());
    }

    static int64_t found(const std::unordered_map<int64_t, int64_t>& table, int64_t key, const Instruction& one) {
        auto place = table.find(key);
        if (place == table.end())
            throw Malformed("instruction " + std::to_string(one.identity) + " uses " + std::to_string(key) +
                            ", which is not in the module");
        return place->second;
    }

    Module module_;
    std::vector<Instruction> instructions_;
    std::unordered_map<int64_t, int64_t> index_, roots_;
};

template <typename T>
nb::object owned(std::vector<T>&& values, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.begin(), owner));
}

nb::object hlo_arrays(nb::bytes data, const std::vector<std::string>& opcode_names) {
    std::string_view text(data.c_str(), data.size());
    Module module;
    std::vector<uint8_t> opcodes;
    std::set<std::string_view> unknown;
    std::string problem;
    {
        nb::gil_scoped_release unlocked;
        try {
            module = ModuleReader().read(text);
        } catch (const Malformed& error) {
            problem = error.what();
        }
        std::unordered_map<std::string_view, uint8_t> numbers;
        for (size_t i = 0; i < opcode_names.size(); ++i) numbers[opcode_names[i]] = static_cast<uint8_t>(i + 1);
        opcodes.reserve(module.opcodes.size());
        for (std::string_view opcode : module.opcodes) {
            auto place = numbers.find(opcode);
            opcodes.push_back(place == numbers.end() ? 0 : place->second);
            if (place == numbers.end()) unknown.insert(opcode);
        }
    }
    if (!problem.empty()) return nb::str(problem.c_str());
    nb::list names;
    for (std::string_view name : unknown) names.append(nb::bytes(name.data(), name.size()));
    size_t count = opcodes.size(), edges = module.edges.size(), splits = module.splits.size();
    std::vector<int64_t> pairs;
    pairs.reserve(2 * edges);
    for (auto [consumer, producer] : module.edges) pairs.push_back(consumer), pairs.push_back(producer);
    return nb::make_tuple(
        nb::bytes(module.name.data(), module.name.size()), owned(std::move(opcodes), {count}),
        owned(std::move(module.rows), {count, FEATURES}), owned(std::move(pairs), {edges, 2}),
        owned(std::move(module.splits), {splits}), names);
}

}  // namespace

void bind_hlo(nb::module_& module) {
    module.def("hlo_arrays", &hlo_arrays, nb::arg("module"), nb::arg("opcode_names"),
               "Name, opcodes, features, edges, segments and unknown opcodes of a serialized HloModuleProto; "
               "or what is wrong with it.");
}

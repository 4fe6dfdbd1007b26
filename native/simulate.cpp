#include "simulate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

namespace apportion {
namespace {

enum Operation : uint8_t {
    enter, jump, branch, finish, give_up,
    copy, choose,
    add, sub, mul, udiv, sdiv, urem, srem, shl, lshr, ashr, bit_and, bit_or, bit_xor,
    equal, unequal, above, not_below, below, not_above, greater, not_less, less, not_greater,
    trunc, sext,
    umin, umax, smin, smax, magnitude, ones, leading_zeros, trailing_zeros, add_saturated, sub_saturated,
    funnel_left, funnel_right,
    fadd, fsub, fmul, fdiv, frem, fneg, fcmp, fma, fmin, fmax, fabs, floor, ceil, round_to_zero,
    from_signed, from_unsigned, to_signed, to_unsigned, fpext, fptrunc,
    operation_count
};

// What the numbers of an instruction have to be.
enum class Kind : uint8_t { control, plain, whole, real, cast };

struct Described {
    const char* name;
    Kind kind;
    uint8_t operands;  // how many of a, b, c are registers
};

constexpr Described described[] = {
    {"enter", Kind::control, 0}, {"jump", Kind::control, 0}, {"branch", Kind::control, 1},
    {"finish", Kind::control, 0}, {"give up", Kind::control, 0},
    {"copy", Kind::plain, 1}, {"select", Kind::plain, 3},
    {"add", Kind::whole, 2}, {"sub", Kind::whole, 2}, {"mul", Kind::whole, 2}, {"udiv", Kind::whole, 2},
    {"sdiv", Kind::whole, 2}, {"urem", Kind::whole, 2}, {"srem", Kind::whole, 2}, {"shl", Kind::whole, 2},
    {"lshr", Kind::whole, 2}, {"ashr", Kind::whole, 2}, {"and", Kind::whole, 2}, {"or", Kind::whole, 2},
    {"xor", Kind::whole, 2},
    {"icmp eq", Kind::whole, 2}, {"icmp ne", Kind::whole, 2}, {"icmp ugt", Kind::whole, 2},
    {"icmp uge", Kind::whole, 2}, {"icmp ult", Kind::whole, 2}, {"icmp ule", Kind::whole, 2},
    {"icmp sgt", Kind::whole, 2}, {"icmp sge", Kind::whole, 2}, {"icmp slt", Kind::whole, 2},
    {"icmp sle", Kind::whole, 2},
    {"trunc", Kind::whole, 1}, {"sext", Kind::cast, 1},
    {"umin", Kind::whole, 2}, {"umax", Kind::whole, 2}, {"smin", Kind::whole, 2}, {"smax", Kind::whole, 2},
    {"abs", Kind::whole, 1}, {"ctpop", Kind::whole, 1}, {"ctlz", Kind::whole, 1}, {"cttz", Kind::whole, 1},
    {"uadd.sat", Kind::whole, 2}, {"usub.sat", Kind::whole, 2},
    {"fshl", Kind::whole, 3}, {"fshr", Kind::whole, 3},
    {"fadd", Kind::real, 2}, {"fsub", Kind::real, 2}, {"fmul", Kind::real, 2}, {"fdiv", Kind::real, 2},
    {"frem", Kind::real, 2}, {"fneg", Kind::real, 1}, {"fcmp", Kind::real, 2}, {"fma", Kind::real, 3},
    {"fmin", Kind::real, 2}, {"fmax", Kind::real, 2}, {"fabs", Kind::real, 1}, {"floor", Kind::real, 1},
    {"ceil", Kind::real, 1}, {"round to zero", Kind::real, 1},
    {"sitofp", Kind::cast, 1}, {"uitofp", Kind::cast, 1}, {"fptosi", Kind::cast, 1}, {"fptoui", Kind::cast, 1},
    {"fpext", Kind::cast, 1}, {"fptrunc", Kind::cast, 1},
};
static_assert(sizeof(described) / sizeof(described[0]) == operation_count);

enum Question {
    global_id, local_id, group_id, global_size, local_size, group_count, global_offset, work_dimensions,
    global_linear_id, local_linear_id, question_count
};
constexpr const char* questions[] = {
    "get_global_id", "get_local_id", "get_group_id", "get_global_size", "get_local_size", "get_num_groups",
    "get_global_offset", "get_work_dim", "get_global_linear_id", "get_local_linear_id",
};
static_assert(sizeof(questions) / sizeof(questions[0]) == question_count);

struct Value {
    uint64_t bits;
    bool known;
};

// Two arrays, not one of `Value`: compilers copy those as 16 bytes at once, and wait for both stores to arrive.
// Pointers to them, which a function can keep for itself: bytes that are stored could change a vector's own.
struct Registers {
    uint64_t* bits;
    uint8_t* known;

    Value operator[](int32_t number) const { return {bits[number], known[number] != 0}; }
    void set(int32_t number, Value value) const {
        bits[number] = value.bits;
        known[number] = value.known;
    }
};

struct Instruction {
    Operation operation;
    uint8_t width;
    uint64_t mask;
    int32_t target, a, b, c;
};

struct Query {
    int32_t target;
    Question question;
    uint32_t dimension;
    uint64_t mask;
};

uint64_t mask_of(int width) { return width == 64 ? ~0ull : (1ull << width) - 1; }

int64_t extended(uint64_t bits, int width) {
    const int unused = 64 - width;
    return static_cast<int64_t>(bits << unused) >> unused;
}

template <class T>
T number_of(uint64_t bits) {
    T number;
    std::memcpy(&number, &bits, sizeof number);  // the low bytes: this runs on little-endian machines only
    return number;
}

template <class T>
uint64_t bits_of(T number) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof number);
    return bits;
}

// The checks that make running safe: every register, block and place that an instruction names is there.

[[noreturn]] void refuse(size_t place, const std::string& why) {
    throw std::invalid_argument("Instruction " + std::to_string(place) + " of a control program " + why);
}

bool is_float_width(int32_t width) { return width == 32 || width == 64; }
bool is_whole_width(int32_t width) { return 1 <= width && width <= 64; }

bool widths_fit(Operation operation, int32_t width, int32_t source) {
    switch (operation) {
        case sext: return is_whole_width(source) && is_whole_width(width) && source <= width;
        case from_signed: case from_unsigned: return is_whole_width(source) && is_float_width(width);
        case to_signed: case to_unsigned: return is_float_width(source) && is_whole_width(width);
        case fpext: return source == 32 && width == 64;
        case fptrunc: return source == 64 && width == 32;
        default: break;
    }
    switch (described[operation].kind) {
        case Kind::whole: return is_whole_width(width);
        case Kind::real: return is_float_width(width);
        default: return true;
    }
}

Instruction checked(const int32_t* numbers, size_t place, const ControlProgram& program, size_t length) {
    if (numbers[0] < 0 || numbers[0] >= operation_count) refuse(place, "has no operation that there is");
    const auto operation = static_cast<Operation>(numbers[0]);
    const Described& about = described[operation];
    const int32_t width = numbers[1], target = numbers[2];
    const auto is_register = [&](int32_t one) { return one >= 0 && static_cast<size_t>(one) < program.registers; };
    const auto is_place = [&](int32_t one) { return one >= 0 && static_cast<size_t>(one) < length; };
    for (int k = 0; k < about.operands; ++k)
        if (!is_register(numbers[3 + k])) refuse(place, "reads a register that is not there");
    if (about.kind != Kind::control && !is_register(target)) refuse(place, "writes a register that is not there");
    if (operation == enter && (target < 0 || static_cast<size_t>(target) >= program.blocks))
        refuse(place, "enters a block that is not there");
    if (operation == jump && !is_place(target)) refuse(place, "jumps to nowhere");
    if (operation == branch && !(is_place(numbers[4]) && is_place(numbers[5]))) refuse(place, "branches to nowhere");
    if (operation == fcmp && (numbers[5] < 0 || numbers[5] > 15)) refuse(place, "compares in a way that there is not");
    if (!widths_fit(operation, width, numbers[5])) refuse(place, "has a width that its operation does not allow");
    // A width that nothing looks at may be anything, and must not be shifted by.
    const int32_t usable = is_whole_width(width) ? width : 64;
    return {operation, static_cast<uint8_t>(usable), mask_of(usable), target, numbers[3], numbers[4], numbers[5]};
}

std::vector<Instruction> checked_code(const ControlProgram& program) {
    if (program.code_numbers == 0 || program.code_numbers % control_instruction_numbers)
        throw std::invalid_argument("A control program has six numbers for each instruction, and one at least");
    const size_t length = program.code_numbers / control_instruction_numbers;
    if (length > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        throw std::invalid_argument("A control program with more instructions than can be numbered");
    std::vector<Instruction> code;
    code.reserve(length);
    for (size_t place = 0; place < length; ++place)
        code.push_back(checked(program.code + place * control_instruction_numbers, place, program, length));
    const Operation last = code.back().operation;
    if (last != jump && last != branch && last != finish && last != give_up) refuse(length - 1, "runs past the end");
    return code;
}

std::vector<Query> checked_queries(const ControlProgram& program) {
    if (program.query_numbers % control_query_numbers)
        throw std::invalid_argument("A control program has four numbers for each query");
    std::vector<Query> queries;
    for (size_t at = 0; at < program.query_numbers; at += control_query_numbers) {
        const int32_t* numbers = program.queries + at;
        const bool fits = numbers[0] >= 0 && static_cast<size_t>(numbers[0]) < program.registers && numbers[1] >= 0 &&
                          numbers[1] < question_count && numbers[2] >= 0 && is_whole_width(numbers[3]);
        if (!fits) throw std::invalid_argument("A control program with a query that cannot be answered");
        queries.push_back({numbers[0], static_cast<Question>(numbers[1]), static_cast<uint32_t>(numbers[2]),
                           mask_of(numbers[3])});
    }
    return queries;
}

void check_launch(const ControlLaunch& launch) {
    bool fits = 1 <= launch.dimensions && launch.dimensions <= 3;
    for (int d = 0; d < 3; ++d)
        fits = fits && launch.local[d] && launch.global[d] && launch.global[d] % launch.local[d] == 0;
    if (!fits) throw std::invalid_argument("A launch for control that is not made of whole work-groups");
}

// The ids of one work-item.
struct Place {
    uint64_t id[3], local[3], group[3];  // ids without the offset

    Place(const ControlLaunch& launch, uint64_t item) {
        for (int d = 0; d < 3; ++d) {
            id[d] = item % launch.global[d];
            item /= launch.global[d];
            local[d] = id[d] % launch.local[d];
            group[d] = id[d] / launch.local[d];
        }
    }
};

uint64_t answer(const Query& query, const ControlLaunch& launch, const Place& place) {
    const uint64_t *global = launch.global, *local = launch.local;
    switch (query.question) {
        case work_dimensions: return launch.dimensions;
        case global_linear_id: return (place.id[2] * global[1] + place.id[1]) * global[0] + place.id[0];
        case local_linear_id: return (place.local[2] * local[1] + place.local[1]) * local[0] + place.local[0];
        default: break;
    }
    const uint32_t d = query.dimension;
    const bool there = d < 3;  // sizes are padded with ones and offsets with noughts, so that 3 are always there
    switch (query.question) {
        case global_id: return there ? place.id[d] + launch.offset[d] : 0;
        case local_id: return there ? place.local[d] : 0;
        case group_id: return there ? place.group[d] : 0;
        case global_size: return there ? global[d] : 1;
        case local_size: return there ? local[d] : 1;
        case group_count: return there ? global[d] / local[d] : 1;
        case global_offset: return there ? launch.offset[d] : 0;
        default: return 0;
    }
}

// Operations that may have no result: dividing by zero, or shifting out of the type.

Value divided(const Instruction& one, Value a, Value b) {
    if (!a.known || !b.known || b.bits == 0) return {0, false};
    const bool gives_rest = one.operation == urem || one.operation == srem;
    if (one.operation == udiv || one.operation == urem) {
        if (((a.bits | b.bits) >> 32) == 0) {  // dividing 32 bits takes a third of the time on many processors
            const auto x = static_cast<uint32_t>(a.bits), y = static_cast<uint32_t>(b.bits);
            return {gives_rest ? x % y : x / y, true};
        }
        return {gives_rest ? a.bits % b.bits : a.bits / b.bits, true};
    }
    const int64_t x = extended(a.bits, one.width), y = extended(b.bits, one.width);
    // Zero once more: a program that mixes widths up may divide by what is wider than the type.
    if (y == 0 || (y == -1 && x == extended(1ull << (one.width - 1), one.width))) return {0, false};
    return {static_cast<uint64_t>(gives_rest ? x % y : x / y) & one.mask, true};
}

Value shifted(const Instruction& one, Value a, Value b) {
    if (!a.known || !b.known || b.bits >= one.width) return {0, false};
    if (one.operation == shl) return {(a.bits << b.bits) & one.mask, true};
    if (one.operation == lshr) return {a.bits >> b.bits, true};
    return {static_cast<uint64_t>(extended(a.bits, one.width) >> b.bits) & one.mask, true};
}

Value bits_counted(const Instruction& one, Value a) {
    if (!a.known) return a;
    uint64_t count = 0;
    if (one.operation == ones) {
        for (uint64_t left = a.bits; left; left &= left - 1) ++count;
    } else if (one.operation == leading_zeros) {
        for (uint64_t bit = 1ull << (one.width - 1); bit && !(a.bits & bit); bit >>= 1) ++count;
    } else {
        for (; count < one.width && !(a.bits >> count & 1); ++count) {}
    }
    return {count & one.mask, true};
}

Value funnelled(const Instruction& one, Value a, Value b, Value c) {
    if (!a.known || !b.known || !c.known) return {0, false};
    const uint64_t by = c.bits % one.width;
    if (by == 0) return one.operation == funnel_left ? a : b;
    const uint64_t left = one.operation == funnel_left ? by : one.width - by;
    return {((a.bits << left) | (b.bits >> (one.width - left))) & one.mask, true};
}

template <class T>
Value float_result(const Instruction& one, const Registers& r) {
    const bool two = described[one.operation].operands > 1, three = described[one.operation].operands > 2;
    if (!r[one.a].known || (two && !r[one.b].known) || (three && !r[one.c].known)) return {0, false};
    const T a = number_of<T>(r[one.a].bits), b = two ? number_of<T>(r[one.b].bits) : T(0);
    const auto made = [](T number) { return Value{bits_of(number), true}; };
    switch (one.operation) {
        case fadd: return made(a + b);
        case fsub: return made(a - b);
        case fmul: return made(a * b);
        case fdiv: return made(a / b);
        case frem: return made(std::fmod(a, b));
        case fneg: return made(-a);
        case fabs: return made(std::fabs(a));
        case floor: return made(std::floor(a));
        case ceil: return made(std::ceil(a));
        case round_to_zero: return made(std::trunc(a));
        case fma: return made(std::fma(a, b, number_of<T>(r[one.c].bits)));
        case fcmp: {  // LLVM's predicates: a bit for each of equal, greater, less, unordered
            const int relation = a == b ? 1 : a > b ? 2 : a < b ? 4 : 8;
            return {(one.c & relation) != 0, true};
        }
        // OpenCL leaves min and max of NaN open.
        case fmin: return std::isnan(a) || std::isnan(b) ? Value{0, false} : made(b < a ? b : a);
        case fmax: return std::isnan(a) || std::isnan(b) ? Value{0, false} : made(a < b ? b : a);
        default: return {0, false};
    }
}

Value converted(const Instruction& one, Value a) {
    if (!a.known) return a;
    const int source = one.c;
    switch (one.operation) {
        case fpext: return {bits_of(static_cast<double>(number_of<float>(a.bits))), true};
        case fptrunc: return {bits_of(static_cast<float>(number_of<double>(a.bits))), true};
        case from_signed: {
            const int64_t whole = extended(a.bits, source);
            return {one.width == 32 ? bits_of(static_cast<float>(whole)) : bits_of(static_cast<double>(whole)), true};
        }
        case from_unsigned:
            return {one.width == 32 ? bits_of(static_cast<float>(a.bits)) : bits_of(static_cast<double>(a.bits)), true};
        default: break;
    }
    // A number that the integer type cannot hold has no result; NaN fails both comparisons.
    const double number = std::trunc(source == 32 ? number_of<float>(a.bits) : number_of<double>(a.bits));
    const bool is_signed = one.operation == to_signed;
    const double end = std::ldexp(1.0, is_signed ? one.width - 1 : one.width);
    if (!(number >= (is_signed ? -end : 0.0) && number < end)) return {0, false};
    if (is_signed) return {static_cast<uint64_t>(static_cast<int64_t>(number)) & one.mask, true};
    return {static_cast<uint64_t>(number) & one.mask, true};
}

enum class Ended { finished, cut, unknown };

struct Outcome {
    Ended how;
    uint64_t left;  // of the operations that it might execute
};

Outcome run_item(const Instruction* code, const Registers r, uint64_t* counts, uint64_t left) {
    const Instruction* at = code;
    for (;;) {
        if (left == 0) return {Ended::cut, 0};
        --left;
        const Instruction& one = *at++;
        const auto whole = [&](uint64_t bits) {
            r.set(one.target, {bits & one.mask, r[one.a].known && r[one.b].known});
        };
        const auto truth = [&](bool holds) { r.set(one.target, {holds, r[one.a].known && r[one.b].known}); };
        const auto a = [&] { return r[one.a].bits; };
        const auto b = [&] { return r[one.b].bits; };
        const auto signed_a = [&] { return extended(r[one.a].bits, one.width); };
        const auto signed_b = [&] { return extended(r[one.b].bits, one.width); };
        switch (one.operation) {
            case enter: ++counts[one.target]; break;
            case jump: at = &code[one.target]; break;
            case branch:
                if (!r[one.a].known) return {Ended::unknown, left};
                at = &code[r[one.a].bits & 1 ? one.b : one.c];
                break;
            case finish: return {Ended::finished, left};
            case give_up: return {Ended::unknown, left};
            case copy: r.set(one.target, r[one.a]); break;
            case choose:
                r.set(one.target, !r[one.a].known ? Value{0, false} : r[one.a].bits & 1 ? r[one.b] : r[one.c]);
                break;
            case add: whole(a() + b()); break;
            case sub: whole(a() - b()); break;
            case mul: whole(a() * b()); break;
            case udiv: case sdiv: case urem: case srem: r.set(one.target, divided(one, r[one.a], r[one.b])); break;
            case shl: case lshr: case ashr: r.set(one.target, shifted(one, r[one.a], r[one.b])); break;
            case bit_and: whole(a() & b()); break;
            case bit_or: whole(a() | b()); break;
            case bit_xor: whole(a() ^ b()); break;
            case equal: truth(a() == b()); break;
            case unequal: truth(a() != b()); break;
            case above: truth(a() > b()); break;
            case not_below: truth(a() >= b()); break;
            case below: truth(a() < b()); break;
            case not_above: truth(a() <= b()); break;
            case greater: truth(signed_a() > signed_b()); break;
            case not_less: truth(signed_a() >= signed_b()); break;
            case less: truth(signed_a() < signed_b()); break;
            case not_greater: truth(signed_a() <= signed_b()); break;
            case trunc: r.set(one.target, {a() & one.mask, r[one.a].known}); break;
            case sext:
                r.set(one.target, {static_cast<uint64_t>(extended(a(), one.c)) & one.mask, r[one.a].known});
                break;
            case umin: whole(a() < b() ? a() : b()); break;
            case umax: whole(a() < b() ? b() : a()); break;
            case smin: whole(signed_a() < signed_b() ? a() : b()); break;
            case smax: whole(signed_a() < signed_b() ? b() : a()); break;
            case magnitude: r.set(one.target, {(signed_a() < 0 ? -a() : a()) & one.mask, r[one.a].known}); break;
            case add_saturated: whole(a() > one.mask - b() ? one.mask : a() + b()); break;
            case sub_saturated: whole(a() < b() ? 0 : a() - b()); break;
            case ones: case leading_zeros: case trailing_zeros: r.set(one.target, bits_counted(one, r[one.a])); break;
            case funnel_left: case funnel_right:
                r.set(one.target, funnelled(one, r[one.a], r[one.b], r[one.c]));
                break;
            case fadd: case fsub: case fmul: case fdiv: case frem: case fneg: case fcmp: case fma: case fmin:
            case fmax: case fabs: case floor: case ceil: case round_to_zero:
                r.set(one.target, one.width == 32 ? float_result<float>(one, r) : float_result<double>(one, r));
                break;
            case from_signed: case from_unsigned: case to_signed: case to_unsigned: case fpext: case fptrunc:
                r.set(one.target, converted(one, r[one.a]));
                break;
            case operation_count: return {Ended::unknown, left};
        }
    }
}

}  // namespace

std::vector<std::string> control_operations() {
    std::vector<std::string> names;
    for (const Described& one : described) names.emplace_back(one.name);
    return names;
}

std::vector<std::string> control_queries() { return {std::begin(questions), std::end(questions)}; }

std::optional<ControlCounts> simulate_control(const ControlProgram& program, const ControlLaunch& launch) {
    const std::vector<Instruction> code = checked_code(program);
    const std::vector<Query> queries = checked_queries(program);
    check_launch(launch);
    std::vector<uint64_t> bits(program.registers);
    std::vector<uint8_t> known(program.registers);
    const Registers registers{bits.data(), known.data()};
    ControlCounts found;
    found.all.assign(program.blocks, 0);
    found.longest.assign(program.blocks, 0);
    std::vector<uint64_t> counts;
    uint64_t budget = launch.budget, most = 0;
    for (size_t item = 0; item < launch.item_count && budget; ++item) {
        const Place place(launch, launch.items[item]);
        std::copy_n(program.values, program.registers, bits.begin());
        std::copy_n(program.known, program.registers, known.begin());
        for (const Query& query : queries)
            registers.set(query.target, {answer(query, launch, place) & query.mask, true});
        counts.assign(program.blocks, 0);
        const uint64_t given = std::min(budget, launch.item_budget);
        const auto [ended, left] = run_item(code.data(), registers, counts.data(), given);
        if (ended == Ended::unknown) return std::nullopt;
        budget -= given - left;
        ++found.begun;
        found.ended += ended == Ended::finished;
        uint64_t instructions = 0;
        for (size_t block = 0; block < program.blocks; ++block) {
            found.all[block] += counts[block];
            instructions += counts[block] * static_cast<uint64_t>(program.weights[block]);
        }
        if (instructions > most || found.begun == 1) most = instructions, found.longest = counts;
    }
    return found;
}

}  // namespace apportion

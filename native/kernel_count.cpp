// glibc's check of longjmp takes a switch to another stack for an error.
#undef _FORTIFY_SOURCE
#include "kernel_count.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <stdexcept>

namespace apportion {
namespace {

enum class ItemState { fresh, waiting, finished };

struct Item {
    ucontext_t start;
    jmp_buf resume;
    ItemState state = ItemState::fresh;
    uint64_t instructions = 0;  // since the last barrier
    uint64_t local[3] = {0, 0, 0};
};

// One launch under way. Work-items of a group take turns on stacks of their own, in one thread: each runs until
// its next barrier. Without barriers one stack serves all of them.
struct Run {
    const CountedLaunch& launch;
    KernelCounts counts;
    void (*entry)(uint64_t) = nullptr;
    uint64_t arguments = 0;
    uint64_t group[3] = {0, 0, 0}, groups[3] = {1, 1, 1};
    std::vector<std::unique_ptr<Item>> items;
    Item* item = nullptr;
    uint64_t item_number = 0, first_item = 0, last_item = 0;
    uint8_t* stacks = nullptr;
    uint64_t stack_bytes = 0, stack_count = 0;
    size_t last_region = 0;
    ucontext_t main_start;
    jmp_buf main_resume;

    explicit Run(const CountedLaunch& l) : launch(l) {}
    ~Run() {
        if (stacks) munmap(stacks, stack_bytes * stack_count);
    }
};

Run* active = nullptr;

constexpr uint64_t page = 4096;

uint64_t item_linear() {
    Run& run = *active;
    uint64_t position = 0;
    for (int d = 2; d >= 0; --d)
        position = position * run.launch.global[d] + run.group[d] * run.launch.local[d] + run.item->local[d];
    return position;
}

[[noreturn]] void leave() { _longjmp(active->main_resume, 1); }

[[noreturn]] void stop(const char* why) {
    active->counts.stopped = why;
    active->counts.bad_item = item_linear();
    leave();
}

// A work-item's life, on its own stack; several lives one after the other where nothing makes them wait.
void live() {
    Run& run = *active;
    for (;;) {
        run.entry(run.arguments);
        ++run.counts.to_barrier[run.item->instructions];
        ++run.counts.work_items;
        run.item->state = ItemState::finished;
        if (run.launch.has_barrier || run.item_number + 1 == run.last_item) leave();
        run.item = run.items[++run.item_number].get();
        run.item->instructions = 0;
    }
}

void go_on(uint64_t number) {
    Run& run = *active;
    run.item_number = number;
    Item& item = *run.items[number];
    run.item = &item;
    if (_setjmp(run.main_resume) != 0) return;
    item.instructions = 0;
    if (item.state == ItemState::waiting) _longjmp(item.resume, 1);
    const uint64_t stack = run.launch.has_barrier ? number : 0;
    getcontext(&item.start);
    // The lowest page of each stack is a guard.
    item.start.uc_stack.ss_sp = run.stacks + stack * run.stack_bytes + page;
    item.start.uc_stack.ss_size = run.stack_bytes - page;
    item.start.uc_link = nullptr;
    makecontext(&item.start, live, 0);
    setcontext(&item.start);
}

void run_group() {
    Run& run = *active;
    const uint64_t count = run.items.size();
    run.last_item = count;
    for (auto& item : run.items) item->state = ItemState::fresh;
    if (!run.launch.has_barrier) {
        go_on(0);
        return;
    }
    for (bool unfinished = true; unfinished && run.counts.stopped.empty();) {
        unfinished = false;
        for (uint64_t number = 0; number < count && run.counts.stopped.empty(); ++number) {
            if (run.items[number]->state == ItemState::finished) continue;
            go_on(number);
            unfinished |= run.items[number]->state != ItemState::finished;
        }
    }
}

void make_stacks(Run& run) {
    run.stack_bytes = (run.launch.stack_bytes + 2 * page - 1) / page * page;
    run.stack_count = run.launch.has_barrier ? run.items.size() : 1;
    void* memory = mmap(nullptr, run.stack_bytes * run.stack_count, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for the stacks of the work-items");
    run.stacks = static_cast<uint8_t*>(memory);
    for (uint64_t stack = 0; stack < run.stack_count; ++stack)
        mprotect(run.stacks + stack * run.stack_bytes, page, PROT_NONE);
}

void touch(uint64_t address, uint32_t bytes, bool is_store) {
    Run& run = *active;
    auto& regions = run.counts.regions;
    CountedRegion* found = nullptr;
    if (run.last_region < regions.size() && address >= regions[run.last_region].begin &&
        address < regions[run.last_region].end)
        found = &regions[run.last_region];
    else
        for (size_t number = 0; number < regions.size(); ++number)
            if (address >= regions[number].begin && address < regions[number].end) {
                run.last_region = number;
                found = &regions[number];
                break;
            }
    ++(is_store ? run.counts.stores : run.counts.loads);
    if (found && address + bytes <= found->end) {
        ++run.counts.spaces[found->place >= local_places];
        const uint64_t offset = address - found->begin;
        if (offset % 4 == 0)
            ++found->words[offset / 4];
        else
            ++run.counts.elsewhere[found->place + offset];
        return;
    }
    const uint64_t stack = run.launch.has_barrier ? run.item_number : 0;
    const uint64_t low = uint64_t(run.stacks) + stack * run.stack_bytes + page, high = low - page + run.stack_bytes;
    if (address >= low && address + bytes <= high) {
        ++run.counts.spaces[2];
        // Private memory of another work-item of the group lies elsewhere; groups use the same again.
        ++run.counts.elsewhere[private_place + (run.item_number << 24) + (high - address)];
        return;
    }
    run.counts.bad_address = address;
    run.counts.bad_bytes = bytes;
    run.counts.bad_store = is_store;
    stop(address < page ? "null" : "outside");
}

// ---- what instrumented code calls ---------------------------------------------------------------------------

void on_segment(uint32_t number) {
    Run& run = *active;
    ++run.counts.segments[number];
    const uint32_t size = run.launch.segment_sizes[number];
    run.item->instructions += size;
    run.counts.instructions += size;
    if (run.counts.instructions > run.launch.most_instructions) stop("limit");
}

void on_load(uint64_t address, uint32_t bytes) { touch(address, bytes, false); }

void on_store(uint64_t address, uint32_t bytes) { touch(address, bytes, true); }

void on_update(uint64_t address, uint32_t bytes) {
    touch(address, bytes, false);
    touch(address, bytes, true);
}

void on_branch(uint32_t number, bool taken) {
    CountedBranch& branch = active->counts.branches[number];
    branch.history = (branch.history << 1 | uint32_t(taken)) & 0xffff;
    if (++branch.executed >= 16) ++branch.patterns[branch.history];
}

// The barrier itself is an instruction, but of no stretch between barriers: so AIWC counts.
void on_barrier() {
    Run& run = *active;
    ++run.counts.barriers;
    ++run.counts.instructions;
    ++run.counts.to_barrier[run.item->instructions];
    run.item->state = ItemState::waiting;
    if (_setjmp(run.item->resume) == 0) leave();
}

uint64_t global_id(uint32_t d) {
    const Run& run = *active;
    return d < 3 ? run.launch.offset[d] + run.group[d] * run.launch.local[d] + run.item->local[d] : 0;
}
uint64_t local_id(uint32_t d) { return d < 3 ? active->item->local[d] : 0; }
uint64_t group_id(uint32_t d) { return d < 3 ? active->group[d] : 0; }
uint64_t global_size(uint32_t d) { return d < 3 ? active->launch.global[d] : 1; }
uint64_t local_size(uint32_t d) { return d < 3 ? active->launch.local[d] : 1; }
uint64_t group_count(uint32_t d) { return d < 3 ? active->groups[d] : 1; }
uint64_t global_offset(uint32_t d) { return d < 3 ? active->launch.offset[d] : 0; }
uint32_t work_dimensions() { return active->launch.dimensions; }
uint64_t local_linear() { return active->item_number; }
int32_t say_nothing() { return 0; }

template <class Function>
uint64_t address_of(Function function) {
    return reinterpret_cast<uint64_t>(function);
}

}  // namespace

KernelCounts count_kernel(uint64_t entry, uint64_t arguments, const CountedLaunch& launch,
                          std::vector<CountedRegion> regions) {
    if (active) throw std::runtime_error("a kernel is being counted already");
    Run run(launch);
    run.entry = reinterpret_cast<void (*)(uint64_t)>(entry);
    run.arguments = arguments;
    run.counts.segments.resize(launch.segment_sizes.size());
    run.counts.branches.resize(launch.branches);
    run.counts.regions = std::move(regions);
    for (auto& region : run.counts.regions) region.words.resize((region.end - region.begin + 3) / 4);
    for (int d = 0; d < 3; ++d) run.groups[d] = launch.global[d] / launch.local[d];
    for (uint64_t z = 0; z < launch.local[2]; ++z)
        for (uint64_t y = 0; y < launch.local[1]; ++y)
            for (uint64_t x = 0; x < launch.local[0]; ++x) {
                run.items.push_back(std::make_unique<Item>());
                uint64_t* local = run.items.back()->local;
                local[0] = x, local[1] = y, local[2] = z;
            }
    make_stacks(run);
    active = &run;
    for (const uint64_t group : launch.groups) {
        run.group[0] = group % run.groups[0];
        run.group[1] = group / run.groups[0] % run.groups[1];
        run.group[2] = group / run.groups[0] / run.groups[1];
        run_group();
        if (!run.counts.stopped.empty()) break;
    }
    active = nullptr;
    return std::move(run.counts);
}

std::unordered_map<std::string, uint64_t> kernel_symbols() {
    std::unordered_map<std::string, uint64_t> symbols = {
        {"__apportion_segment", address_of(on_segment)},
        {"__apportion_branch", address_of(on_branch)},
        {"__apportion_barrier", address_of(on_barrier)},
        {"_Z13get_global_idj", address_of(global_id)},
        {"_Z12get_local_idj", address_of(local_id)},
        {"_Z12get_group_idj", address_of(group_id)},
        {"_Z15get_global_sizej", address_of(global_size)},
        {"_Z14get_local_sizej", address_of(local_size)},
        {"_Z23get_enqueued_local_sizej", address_of(local_size)},
        {"_Z14get_num_groupsj", address_of(group_count)},
        {"_Z17get_global_offsetj", address_of(global_offset)},
        {"_Z12get_work_dimv", address_of(work_dimensions)},
        {"_Z20get_global_linear_idv", address_of(item_linear)},
        {"_Z19get_local_linear_idv", address_of(local_linear)},
        {"printf", address_of(say_nothing)},
    };
    for (const char* space : {"", "_0", "_1", "_2", "_3", "_4"}) {
        symbols[std::string("__apportion_load") + space] = address_of(on_load);
        symbols[std::string("__apportion_store") + space] = address_of(on_store);
        symbols[std::string("__apportion_update") + space] = address_of(on_update);
    }
    return symbols;
}

}  // namespace apportion

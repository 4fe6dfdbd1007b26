// A command under ptrace: what it opens and starts, or every instruction that it executes. Linux only; no counters
// of the processor are needed. Call it in a process of its own: it becomes the parent of what it traces.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

#ifdef __linux__
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unordered_map>
#include <unordered_set>
#endif

namespace nb = nanobind;
using namespace nb::literals;

namespace {

#ifdef __linux__

struct Edge {
    uint64_t from, to;
    bool operator==(const Edge& other) const { return from == other.from && to == other.to; }
};
struct EdgeHash {
    size_t operator()(const Edge& edge) const { return (edge.from * 0x9e3779b97f4a7c15ull) ^ (edge.to * 0xc2b2ae3d27d4eb4full); }
};

struct Thread {
    bool running_program = false;  // after its exec: what the launcher did is not counted
    bool entered = false;          // inside a system call
    long call = 0;
    uint64_t last = 0;
};

struct Trace {
    bool step = false;
    uint64_t most_steps = 0;
    uint64_t burst = 0;  // steps in a row before running freely for `gap_us`; 0 steps everything
    uint64_t gap_us = 0;

    std::unordered_map<pid_t, Thread> threads;
    std::unordered_map<Edge, uint64_t, EdgeHash> edges;
    std::unordered_map<uint64_t, std::string> code;
    uint64_t steps = 0, opened = 0, started_threads = 0, started_processes = 0, in_burst = 0, bursts = 0;
    size_t most_threads = 0;
    bool out_of_budget = false;
    int status = 0;
};

uint64_t instruction_pointer(pid_t thread) {
#if defined(__x86_64__)
    errno = 0;
    const long value = ptrace(PTRACE_PEEKUSER, thread, 16 * sizeof(long), nullptr);  // rip in user_regs_struct
    return errno ? 0 : uint64_t(value);
#else
    uint64_t registers[34] = {0};
    iovec place{registers, sizeof registers};
    if (ptrace(__ptrace_request(PTRACE_GETREGSET), thread, NT_PRSTATUS, &place) != 0) return 0;
#if defined(__aarch64__)
    return registers[32];
#else
    return 0;
#endif
#endif
}

std::string code_at(pid_t thread, uint64_t address) {
    char bytes[16];
    for (size_t size : {size_t(16), size_t(4096 - address % 4096)}) {  // the next page may be none
        if (size > 16) continue;
        iovec here{bytes, size}, there{reinterpret_cast<void*>(address), size};
        const ssize_t got = process_vm_readv(thread, &here, 1, &there, 1, 0);
        if (got > 0) return std::string(bytes, size_t(got));
    }
    return {};
}

void record(Trace& trace, pid_t thread, Thread& state) {
    const uint64_t now = instruction_pointer(thread);
    if (!now) return;
    ++trace.steps;
    if (!trace.edges[{state.last, now}]++ && !trace.code.count(now)) trace.code[now] = code_at(thread, now);
    state.last = now;
}

bool opens(long call) {
    switch (call) {
#ifdef SYS_open
        case SYS_open:
        case SYS_creat:
#endif
        case SYS_openat:
#ifdef SYS_openat2
        case SYS_openat2:
#endif
            return true;
        default:
            return false;
    }
}

void at_system_call(Trace& trace, pid_t thread, Thread& state) {
    __ptrace_syscall_info info;
    if (ptrace(__ptrace_request(PTRACE_GET_SYSCALL_INFO), thread, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        state.call = long(info.entry.nr);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && state.running_program && opens(state.call) &&
               info.exit.rval >= 0) {
        ++trace.opened;
    }
}

void resume(Trace& trace, pid_t thread, Thread& state, int signal) {
    __ptrace_request how = trace.step ? PTRACE_SINGLESTEP : PTRACE_SYSCALL;
    if (trace.step) {
        if (!state.running_program) how = PTRACE_CONT;
        if (trace.out_of_budget) how = PTRACE_CONT;
        if (trace.burst && trace.in_burst >= trace.burst) how = PTRACE_CONT;
    }
    ptrace(how, thread, nullptr, signal);
}

// Where all run freely between two bursts: after a while one thread is stopped, and stepped from there on.
void next_burst(Trace& trace) {
    timespec gap{time_t(trace.gap_us / 1000000), long(trace.gap_us % 1000000) * 1000};
    nanosleep(&gap, nullptr);
    trace.in_burst = 0;
    ++trace.bursts;
    for (auto& [thread, state] : trace.threads)
        if (state.running_program) {
            state.last = 0;
            ptrace(__ptrace_request(PTRACE_INTERRUPT), thread, nullptr, nullptr);
        }
}

void follow(Trace& trace, pid_t first) {
    for (;;) {
        int status = 0;
        const bool between = trace.step && trace.burst && trace.in_burst >= trace.burst && !trace.out_of_budget;
        pid_t thread = waitpid(-1, &status, __WALL | (between ? WNOHANG : 0));
        if (between && thread == 0) {
            next_burst(trace);
            continue;
        }
        if (thread < 0) {
            if (errno == EINTR) continue;
            return;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            trace.threads.erase(thread);
            if (thread == first) trace.status = status;
            if (trace.threads.empty()) return;
            continue;
        }
        Thread& state = trace.threads[thread];
        const int event = status >> 16, signal = WSTOPSIG(status);
        int deliver = 0;
        if (event == PTRACE_EVENT_EXEC) {
            state.running_program = true;
            state.last = 0;
            if (trace.step && !trace.burst) record(trace, thread, state);
        } else if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
            if (state.running_program) ++(event == PTRACE_EVENT_CLONE ? trace.started_threads : trace.started_processes);
            unsigned long child = 0;
            ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &child);
            trace.threads[pid_t(child)].running_program = trace.threads[thread].running_program;
        } else if (event == PTRACE_EVENT_STOP) {
            // A new thread, an interruption for a burst, or a stop of the whole group, which is not kept up.
        } else if (signal == (SIGTRAP | 0x80)) {
            at_system_call(trace, thread, state);
        } else if (signal == SIGTRAP && trace.step) {
            Thread& stepped = trace.threads[thread];
            if (stepped.running_program) {
                record(trace, thread, stepped);
                if (trace.burst) ++trace.in_burst;
                if (trace.most_steps && trace.steps >= trace.most_steps) trace.out_of_budget = true;
            }
        } else {
            deliver = signal;
        }
        trace.most_threads = std::max(trace.most_threads, trace.threads.size());
        resume(trace, thread, trace.threads[thread], deliver);
    }
}

[[noreturn]] void become(char* const* words, const char* input) {
    const int from = open(input, O_RDONLY), nowhere = open("/dev/null", O_WRONLY);
    if (from >= 0) dup2(from, 0);
    if (nowhere >= 0) dup2(nowhere, 1);
    raise(SIGSTOP);  // until it is traced
    execvp(words[0], words);
    _exit(127);
}

template <class T>
nb::ndarray<nb::numpy, T> array_of(const std::vector<T>& values) {
    T* data = new T[values.size()];
    std::copy(values.begin(), values.end(), data);
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, {values.size()}, owner);
}

nb::dict traced(const std::vector<std::string>& command, const std::string& input, bool step, uint64_t most_steps,
                uint64_t burst, uint64_t gap_us) {
    Trace trace;
    trace.step = step, trace.most_steps = most_steps, trace.burst = burst, trace.gap_us = gap_us;
    trace.in_burst = burst;  // sampling begins with a gap
    std::vector<char*> words;
    for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    {
        nb::gil_scoped_release released;
        const pid_t child = fork();
        if (child < 0) throw std::runtime_error("cannot start a process");
        if (child == 0) become(words.data(), input.c_str());
        int status = 0;
        waitpid(child, &status, WUNTRACED);
        const long options = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                             PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD;
        if (ptrace(__ptrace_request(PTRACE_SEIZE), child, nullptr, options) != 0) {
            const int number = errno;
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            throw std::runtime_error(std::string("ptrace is not allowed here: ") + strerror(number));
        }
        trace.threads[child];
        kill(child, SIGCONT);
        follow(trace, child);
    }
    std::vector<uint64_t> from, to, times, places;
    for (const auto& [edge, count] : trace.edges) from.push_back(edge.from), to.push_back(edge.to), times.push_back(count);
    nb::dict code;
    for (const auto& [place, bytes] : trace.code) code[nb::int_(place)] = nb::bytes(bytes.data(), bytes.size());
    nb::dict found;
    found["from"] = array_of(from);
    found["to"] = array_of(to);
    found["times"] = array_of(times);
    found["code"] = code;
    found["steps"] = trace.steps;
    found["bursts"] = trace.bursts;
    found["whole"] = !trace.out_of_budget && !burst;
    found["opened"] = trace.opened;
    found["threads"] = trace.started_threads;
    found["processes"] = trace.started_processes;
    found["most_threads"] = trace.most_threads;
    found["exit_status"] = WIFEXITED(trace.status) ? WEXITSTATUS(trace.status) : -WTERMSIG(trace.status);
    return found;
}

#else

nb::dict traced(const std::vector<std::string>&, const std::string&, bool, uint64_t, uint64_t, uint64_t) {
    throw std::runtime_error("commands can be traced on Linux only");
}

#endif

}  // namespace

void bind_process_trace(nb::module_& module) {
    module.def("trace_process", &traced, "command"_a, "input"_a, "step"_a, "most_steps"_a, "burst"_a, "gap_us"_a,
               "Run a command under ptrace: system calls that open files, threads and processes it starts; or, with "
               "`step`, pairs of instructions executed one after the other. Only in a process of its own.");
}

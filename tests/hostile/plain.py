"""Kernels that try to do harm in plain OpenCL C, or while they are compiled: for every driver, GPUs as well.

A GPU's kernel makes no system calls; what it can reach for is memory, time, and the compiler, which runs in
the worker process as every driver's does.
"""

from __future__ import annotations

from pathlib import Path

from tests.hostile.kernels import Attempt

_FAILS: frozenset[int] = frozenset()
_NOTHING = frozenset({0})


def _plain(
    category: str,
    name: str,
    body: str,
    *,
    outside: str = "",
    may_run: bool = False,
    items: int = 1,
    seconds: float = 5.0,
) -> Attempt:
    """Args: may_run: the launch may also end, with nothing to show for it."""
    return Attempt(
        category, name, body, allowed=_NOTHING if may_run else _FAILS, exhausts=may_run, seconds=seconds,
        preamble="", outside=outside, items=items, harm=_made_a_file,
    )  # fmt: skip


def _made_a_file(outside: Path) -> bool:
    return (outside / "new").exists()


_DOUBLING = "#define D0 r += 1;\n" + "".join(f"#define D{n + 1} D{n} D{n}\n" for n in range(40))

PLAIN_ATTEMPTS = [
    # Reading.
    _plain("read", "a file of the user by #include", "", outside='#include "@SECRET@"'),
    _plain("read", "the list of users by #include", "", outside="#include </etc/passwd>"),
    _plain("read", "memory that nobody has", "r = *(volatile global long *)0x7f0000000000;"),
    _plain("read", "memory a terabyte before its array", "r = ((volatile global long *)out)[-(1L << 37)];"),
    # Writing.
    _plain("write", "behind its array", "for (int i = 16; i < 32; i++) ((volatile global long *)out)[i] = -1;"),
    _plain("write", "in front of its array", "for (int i = 1; i < 9; i++) ((volatile global long *)out)[-i] = -1;"),
    _plain("write", "what guards are made of, behind its array (H14)",
           "for (int i = 128; i < 256; i++) ((volatile global uchar *)out)[i] = 0xA5;"),
    _plain("write", "memory a terabyte behind its array", "((volatile global long *)out)[1L << 37] = 1;"),
    _plain("write", "address zero", "*(volatile global long *)8 = 1;"),
    # Functions of the C library, in whose process the kernel runs.
    _plain("read", "a file, by functions of the C library",
           'char p[] = "@SECRET@"; char q[8] = {0}; read(open(p, 0), q, 4); r = q[0] == 0x74 && q[1] == 0x68;',
           outside="int open(const char *path, int how); long read(int file, void *to, ulong bytes);", may_run=True),
    _plain("read", "the environment, by a function of the C library",
           'char p[] = "APPORTION_SECRET"; r = getenv(p) != 0;', outside="char *getenv(const char *name);", may_run=True),
    _plain("write", "a new file, by a function of the C library",
           'char p[] = "@OUTSIDE@/new"; r = creat(p, 0600) >= 0;', outside="int creat(const char *path, uint mode);",
           may_run=True),
    _plain("write", "a new file, before the kernel is called", "r = 0;", may_run=True,
           outside='int creat(const char *path, uint mode);\n__attribute__((constructor)) void first(void) {'
           ' char p[] = "@OUTSIDE@/new"; creat(p, 0600); }'),
    _plain("exec", "a shell, by a function of the C library",
           'char p[] = "echo > @OUTSIDE@/new"; r = system(p) == 0;', outside="int system(const char *command);",
           may_run=True),
    _plain("exec", "a shell, by a pipe of the C library",
           'char p[] = "echo > @OUTSIDE@/new"; char m[] = "r"; r = popen(p, m) != 0;',
           outside="void *popen(const char *command, const char *mode);", may_run=True),
    _plain("fork", "by a function of the C library", "r = fork() >= 0;", outside="int fork(void);", may_run=True),
    _plain("connect", "by functions of the C library", "r = socket(2, 1, 0) >= 0;",
           outside="int socket(int family, int type, int protocol);", may_run=True),
    _plain("kill", "by a function of the C library", "r = kill(@PARENT@, 9) == 0;",
           outside="int kill(int process, int number);", may_run=True),
    _plain("crash", "leaving by a function of the C library", "_exit(0);", outside="void _exit(int status);", may_run=True),
    _plain("crash", "an address where functions to be called first are listed", "r = first[0] & 0;", may_run=True,
           outside='__attribute__((used, section(".init_array"))) constant long first[1] = {0x41414141};'),
    # Crashing.
    _plain("crash", "a division by zero", "volatile int zero = 0; out[1] = 1 / zero; out[1] = 0;", may_run=True),
    _plain("crash", "calling itself without end", "r = deep(0) & 0;", may_run=True,
           outside="static long deep(long n) { volatile long kept[64]; kept[n & 63] = n; "
           "return deep(n + 1) + kept[n & 63]; }"),
    # Exhausting.
    _plain("memory", "a gigabyte for a work-item",
           "volatile char deep[1 << 30]; for (long i = 0; i < 1 << 30; i += 4096) deep[i] = 0; r = deep[4096];",
           may_run=True),
    _plain("memory", "a gigabyte of local memory",
           "local long kept[1 << 27]; for (long i = 0; i < 1 << 27; i += 512) kept[i] = 0; r = kept[512];",
           may_run=True),
    _plain("output", "printf without end", 'for (long i = 0; i < 1L << 40; i++) printf("%ld XXXXXXXXXXXXXXXX\\n", i);'),
    # Hanging.
    _plain("hang", "a loop without end", "while (((volatile global long *)out)[3] == 0) {}", seconds=1),
    _plain("hang", "a lock that nobody gives back",
           "volatile global int *lock = (volatile global int *)out; for (int i = 0; i < 2; i++)"
           " while (atomic_cmpxchg(lock, 0, 1)) {}", seconds=1),
    _plain("hang", "a work-item that waits for the next",
           "local volatile int flag; if (get_local_id(0) == 0) flag = 0; barrier(CLK_LOCAL_MEM_FENCE);"
           " if (get_local_id(0) == 63) flag = 1; else while (!flag) {}", items=64, may_run=True, seconds=1),
    _plain("hang", "a barrier that half of the work-items leave out",
           "if (get_local_id(0) < 32) { barrier(CLK_LOCAL_MEM_FENCE); barrier(CLK_LOCAL_MEM_FENCE); }",
           items=64, may_run=True, seconds=1),
    # Compiling.
    _plain("compile", "macros that double forty times", "D40", outside=_DOUBLING),
    _plain("compile", "a device for a header", "", outside='#include "/dev/zero"', may_run=True),
    _plain("compile", "a header that includes itself", "", outside="#include __FILE__", may_run=True),
    _plain("compile", "100,000 brackets", f"r = {'(' * 100_000}0{')' * 100_000};"),
    _plain("compile", "eight gigabytes that are not zero", "r = big[out[3]];", outside="constant long big[1L << 30] = {1};",
           may_run=True),
    _plain("compile", "a compiler that is told to crash", "", outside="#pragma clang __debug crash", may_run=True),
    _plain("compile", "a compiler that is told to call itself without end", "", may_run=True,
           outside="#pragma clang __debug overflow_stack"),
    _plain("compile", "a name of ten million letters", f"long {'x' * 10_000_000} = 0;", may_run=True),
    _plain("compile", "structures 20,000 deep", "r = 0;", may_run=True,
           outside="struct s0 { int a; };\n" + "".join(f"struct s{n + 1} {{ struct s{n} a; }};\n" for n in range(20_000))),
    _plain("compile", "a switch of 200,000 cases", may_run=True,
           body="switch (out[3]) { " + " ".join(f"case {n}: r ^= {n * 7919 % 1009};" for n in range(200_000)) + " } r = 0;"),
    _plain("compile", "30,000 conditions in one another", "#if 1\n" * 30_000 + "r = 0;\n" + "#endif\n" * 30_000, may_run=True),
    _plain("compile", "loops to be unrolled a hundred million times",
           "volatile long v = 0;\n_Pragma(\"unroll\") for (int i = 0; i < 10000; i++)"
           ' _Pragma("unroll") for (int j = 0; j < 10000; j++) v ^= i ^ j;\nr = v & 0;', may_run=True),
]  # fmt: skip

_PTX = "NVIDIA's assembly: "
CARD_ATTEMPTS = [
    _plain("crash", _PTX + "a trap", 'asm volatile("trap;");'),
    _plain("crash", _PTX + "an address that is not aligned",
           "*(volatile global long *)((global char *)out + 1) = 0x0101010101010101;"),
    _plain("crash", _PTX + "a breakpoint", 'asm volatile("brkpt;");', may_run=True),
    _plain("hang", _PTX + "asleep for ever", 'while (1) asm volatile("nanosleep.u32 1000000;");', seconds=1),
    _plain("hang", _PTX + "leaving before the barrier of the others",
           'if (get_local_id(0) < 32) asm volatile("exit;"); asm volatile("bar.sync 1, 64;");',
           items=64, may_run=True, seconds=1),
    _plain("read", _PTX + "local memory that others left",
           'local volatile long kept[1024]; for (int i = 0; i < 1024; i++) r |= kept[i];', may_run=True),
]  # fmt: skip
"For NVIDIA's driver."

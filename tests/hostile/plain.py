"""Kernels that try to do harm in plain OpenCL C, or while they are compiled: for every driver, GPUs as well.

A GPU's kernel makes no system calls; what it can reach for is memory, time, and the compiler, which runs in
the worker process as every driver's does.
"""

from __future__ import annotations

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
        preamble="", outside=outside, items=items,
    )  # fmt: skip


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

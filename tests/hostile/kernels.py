"""Kernels that try to do harm from inside a worker process, by making system calls in inline assembly.

Each says what it tries, and what must come of it. They go round every check of the source: what is tried here
is the cage alone. For x86-64 with Linux, since system calls have other numbers elsewhere.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PREAMBLE = r"""
static long call6(long n, long a, long b, long c, long d, long e, long f) {
    // Registers are saved by hand: compilers that go by way of SPIR know none of their names.
    volatile long v[8] = {n, a, b, c, d, e, f, 0};
    __asm__ volatile(
        "lea -256(%%rsp), %%rsp\n push %%rax\n push %%rbx\n push %%rcx\n push %%rdx\n push %%rsi\n push %%rdi\n"
        "push %%r8\n push %%r9\n push %%r10\n push %%r11\n push %0\n pop %%rbx\n"
        "mov 8(%%rbx), %%rdi\n mov 16(%%rbx), %%rsi\n mov 24(%%rbx), %%rdx\n mov 32(%%rbx), %%r10\n"
        "mov 40(%%rbx), %%r8\n mov 48(%%rbx), %%r9\n mov (%%rbx), %%rax\n syscall\n mov %%rax, 56(%%rbx)\n"
        "pop %%r11\n pop %%r10\n pop %%r9\n pop %%r8\n pop %%rdi\n pop %%rsi\n pop %%rdx\n pop %%rcx\n"
        "pop %%rbx\n pop %%rax\n lea 256(%%rsp), %%rsp"
        : : "r"((long)v) : "memory");
    return v[7];
}
#define call(n, a, b, c, d) call6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
"""

SECRET = "the secret of this user"
"What is in a file that is none of a kernel's business."
HARMLESS = "kernel void attempt(global long *out) { out[0] = 42; }"

REFUSED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"What a system call fails with that the cage does not let through."


@dataclass(frozen=True)
class Attempt:
    """One kernel, and what must come of it."""

    category: str
    name: str
    body: str
    "C code that leaves the result of what it tried in `r`; `@SECRET@` and the like stand for paths."
    allowed: frozenset[int] = REFUSED
    "Numbers of errors, one of which `r` must be; empty: the launch must fail."
    harm: Callable[[Path], bool] = field(default=lambda _: False)
    "Whether the harm was done, in spite of that; it is given the folder that is not the kernel's business."
    exhausts: bool = False
    "Whether the launch may also be ended for what it takes."
    seconds: float = 20.0
    "Deadline of the launch."
    preamble: str = PREAMBLE
    "What makes system calls; empty where the body makes none."
    outside: str = ""
    "What stands before the kernel."
    items: int = 1
    "Work-items of its one work-group."

    def source(self, replacements: dict[str, str]) -> str:
        """The kernel with the paths of this machine."""
        alone = "    if (get_global_id(0)) return;\n" if self.items == 1 else ""
        text = (
            f"{self.preamble}\n{self.outside}\nkernel void attempt(global long *out) {{\n"
            f"{alone}    long r = 0;\n    {self.body}\n    out[0] = r;\n}}\n"
        )
        for name, value in replacements.items():
            text = text.replace(f"@{name}@", value)
        return text


def _path(text: str) -> str:
    return f'char p[] = "{text}";'


def _opening(name: str, path: str, flags: int = 0) -> Attempt:
    category = "write" if flags & 3 else "read"
    return Attempt(category, name, f"{_path(path)} r = call(2, p, {flags}, 0600, 0);")


def _calling(category: str, name: str, number: int, *arguments: str, before: str = "") -> Attempt:
    given = [*arguments, "0", "0", "0", "0"][:4]
    return Attempt(category, name, f"{before} r = call({number}, {', '.join(given)});")


def _there(name: str) -> Callable[[Path], bool]:
    return lambda outside: (outside / name).exists()


_SECRET = 'char p[] = "@SECRET@";'
_NEW = 'char p[] = "@OUTSIDE@/new";'
_PARENT = "int parent = @PARENT@;"

ATTEMPTS = [
    # Reading.
    _opening("the password file", "/etc/shadow"),
    _opening("the list of users", "/etc/passwd"),
    _opening("a file of the user", "@SECRET@"),
    _opening("a file by a way round", "/proc/self/root@SECRET@"),
    _opening("a file from its own folder upwards", "/proc/self/cwd/../../../../../../../etc/passwd"),
    _opening("the environment of the process that asked", "/proc/@PARENT@/environ"),
    _opening("the memory of the process that asked", "/proc/@PARENT@/mem", 2),
    _opening("a listing of the user's files", "@OUTSIDE@", 0o200000),
    _opening("a listing of the root", "/", 0o200000),
    Attempt("read", "the memory of the machine", _path("/dev/mem") + " r = call(2, p, 0, 0, 0);",
            allowed=REFUSED | {errno.ENOENT}),
    Attempt("read", "a file through a link of its own",
            'char p[] = "@SECRET@"; char q[] = "@CACHE@/link"; call(88, p, q, 0, 0); r = call(2, q, 0, 0, 0);'
            " call(87, q, 0, 0, 0);"),
    _calling("read", "memory of the process that asked, by process_vm_readv", 310, "@PARENT@"),
    _calling("read", "a file by its handle", 304, "-100"),
    _calling("read", "a file by openat2", 437, "-100", "p", before=_SECRET),
    _calling("read", "a file by io_uring", 425, "8"),
    # While it is compiled; 0x74686520 is how SECRET begins.
    Attempt("read", "a file by the assembler", 'long p; __asm__ volatile(".pushsection .rodata\\n1: .incbin'
            ' \\"@SECRET@\\"\\n.popsection\\n lea 1b(%%rip), %0" : "=r"(p));'
            " for (int i = 0; i < 4; i++) r = r << 8 | ((char *)p)[i]; r = r == 0x74686520;",
            allowed=frozenset({0}), exhausts=True),
    # Writing.
    Attempt("write", "a new file", f"{_NEW} r = call(2, p, 0101, 0600, 0);", harm=_there("new")),
    _opening("into a file of the user", "@SECRET@", 1),
    Attempt("write", "emptying a file", f"{_SECRET} r = call(76, p, 0, 0, 0);"),
    Attempt("write", "removing a file", f"{_SECRET} r = call(87, p, 0, 0, 0);"),
    Attempt("write", "moving a file away", f"{_SECRET} {_NEW.replace('p[]', 'q[]')} r = call(82, p, q, 0, 0);",
            harm=_there("new")),
    Attempt("write", "a new folder", f"{_NEW} r = call(83, p, 0700, 0, 0);", harm=_there("new")),
    Attempt("write", "a second name for a file",
            f"{_SECRET} {_NEW.replace('p[]', 'q[]')} r = call(86, p, q, 0, 0);", harm=_there("new")),
    Attempt("write", "opening a file's rights", f"{_SECRET} r = call(90, p, 0777, 0, 0);",
            harm=lambda outside: bool((outside / "secret").stat().st_mode & 0o077)),
    _calling("write", "giving a file away", 92, "p", "1", "1", before=_SECRET),
    _calling("write", "a file's times", 235, "p", before=_SECRET),
    _calling("write", "a file's attributes", 188, "p", "p", "p", "1", before=_SECRET),
    _calling("write", "a device", 133, "p", "020600", "0x103", before=_NEW),
    _calling("write", "mounting", 165, "p", "p", before=_NEW),
    # Connecting.
    _calling("connect", "an internet socket", 41, "2", "1"),
    _calling("connect", "an internet socket for datagrams", 41, "2", "2"),
    _calling("connect", "a version-6 socket", 41, "10", "1"),
    _calling("connect", "a local socket", 41, "1", "1"),
    _calling("connect", "a socket to the kernel", 41, "16", "3"),
    _calling("connect", "a raw socket", 41, "17", "3"),
    _calling("connect", "a pair of sockets", 53, "1", "1", "0", "pair", before="int pair[2];"),
    # Forking and executing.
    _calling("fork", "fork", 57),
    _calling("fork", "clone as fork does", 56, "17"),
    _calling("fork", "clone3", 435, "p", "88", before="long p[11] = {0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0};"),
    _calling("fork", "a child of the keeper, that kills it as it ends", 56, "0x8009"),
    Attempt("fork", "as the linker is started, each from the last", r"""
    volatile long v[4] = {30000, 0, call(39, 0, 0, 0, 0), 0};
    __asm__ volatile(
        "lea -256(%%rsp), %%rsp\n push %%rax\n push %%rbx\n push %%rcx\n push %%rdi\n push %%r11\n push %0\n pop %%rbx\n"
        "1: mov $58, %%eax\n syscall\n test %%rax, %%rax\n jz 2f\n js 3f\n jmp 4f\n"  // vfork
        "2: decq (%%rbx)\n cmpq $0, (%%rbx)\n jg 1b\n jmp 4f\n"  // the child goes on, while its parent waits
        "3: mov %%rax, 8(%%rbx)\n"
        "4: mov $39, %%eax\n syscall\n cmp %%rax, 16(%%rbx)\n je 5f\n xor %%edi, %%edi\n mov $231, %%eax\n syscall\n"
        "5: pop %%r11\n pop %%rdi\n pop %%rcx\n pop %%rbx\n pop %%rax\n lea 256(%%rsp), %%rsp"
        : : "r"((long)v) : "memory");
    r = v[1];""", allowed=frozenset()),
    _calling("fork", "a new namespace", 272, "0x10000000"),
    _calling("fork", "another's namespace", 308, "0"),
    Attempt("exec", "a shell", _path("/bin/sh") + " long v[] = {(long)p, 0}; r = call(59, p, v, 0, 0);"),
    Attempt("exec", "this Python", _path("@PYTHON@") + " long v[] = {(long)p, 0}; r = call(59, p, v, 0, 0);"),
    Attempt("exec", "a program from memory",
            'char p[] = "x"; char e[] = ""; long v[] = {(long)p, 0}; long fd = call(319, p, 0, 0, 0);'
            " r = call6(322, fd, (long)e, (long)v, 0, 0x1000, 0);"),
    Attempt("exec", "a shell, by the loader of programs",
            'char p[] = "@LOADER@"; char a[] = "/bin/sh"; char b[] = "-c"; char c[] = "echo > @OUTSIDE@/new";'
            " long v[] = {(long)p, (long)a, (long)b, (long)c, 0}; r = call(59, p, v, 0, 0);",
            allowed=frozenset(), harm=_there("new")),
    # Tracing.
    _calling("ptrace", "being traced by the keeper", 101, "0"),
    _calling("ptrace", "tracing the process that asked", 101, "16", "@PARENT@"),
    _calling("ptrace", "seizing the keeper", 101, "0x4206", "@KEEPER@"),
    _calling("ptrace", "writing memory of the process that asked", 311, "@PARENT@"),
    _calling("ptrace", "a descriptor for the process that asked", 434, "@PARENT@"),
    _calling("ptrace", "a file of another process", 438, "3", "0"),
    # Killing.
    _calling("kill", "the process that asked", 62, "@PARENT@", "9"),
    _calling("kill", "the keeper", 62, "@KEEPER@", "9"),
    _calling("kill", "everybody", 62, "-1", "9"),
    _calling("kill", "a thread of the process that asked", 234, "@PARENT@", "@PARENT@", "9"),
    _calling("kill", "a thread, the old way", 200, "@PARENT@", "9"),
    _calling("kill", "by a queued signal", 129, "@PARENT@", "9"),
    Attempt("kill", "by a signal that a pipe sends",
            "int p[2]; call(22, p, 0, 0, 0); call(72, p[0], 10, 9, 0); r = call(72, p[0], 8, @PARENT@, 0);"),
    Attempt("kill", "by a signal that a device sends",
            "int p[2]; call(22, p, 0, 0, 0); int who = @PARENT@; r = call(16, p[0], 0x8901, &who, 0);"),
    _calling("kill", "leaving the group that is killed", 109, "0", "0"),
    _calling("kill", "leaving the session", 112),
    _calling("kill", "outliving the keeper", 157, "1", "0"),
    # Privileges.
    _calling("privileges", "another user", 105, "0"),
    _calling("privileges", "capabilities", 126),
    _calling("privileges", "a module of the kernel", 175),
    _calling("privileges", "a program inside the kernel", 321, "0"),
    _calling("privileges", "keys of the user", 250, "0", "-3"),
    _calling("privileges", "counting others' events", 298, "p", "-1", "0", "-1", before="long p[16] = {0};"),
    _calling("privileges", "handling page faults", 323),
    _calling("privileges", "the name of the machine", 170, "p", "1", before='char p[] = "x";'),
    _calling("privileges", "the clock of the machine", 227, "0", "p", before="long p[2] = {0};"),
    _calling("privileges", "another root folder", 161, "p", before='char p[] = "/";'),
    _calling("privileges", "limits of the process that asked", 302, "@PARENT@", "7", "p",
             before="long p[2] = {1, 1};"),
    _calling("privileges", "a filter of its own", 317, "1"),
    _calling("privileges", "typing into the terminal", 16, "0", "0x5412", "p", before='char p[] = "x";'),
    _calling("privileges", "shared memory of others", 29, "1", "4096", "0666"),
    # Exhausting.
    Attempt("memory", "more than there is",
            "for (long i = 0; i < 1 << 20; i++) { long m = call6(9, 0, 64 << 20, 3, 0x22, -1, 0);"
            " if (m < 0) { r = m; break; } for (long j = 0; j < 64 << 20; j += 4096) ((char *)m)[j] = 1; }",
            allowed=frozenset({errno.ENOMEM}), exhausts=True),
    Attempt("memory", "a terabyte at once", "r = call6(9, 0, 1L << 40, 3, 0x22, -1, 0);",
            allowed=frozenset({errno.ENOMEM}), exhausts=True),
    Attempt("memory", "the stack",
            "volatile char deep[1 << 30]; for (long i = (1 << 30) - 1; i >= 0; i -= 4096) deep[i] = 1; r = deep[0] & 0;",
            allowed=frozenset({0}), exhausts=True),  # a driver may keep it elsewhere, within what is allowed
    Attempt("memory", "memory that cannot be given back", "r = call(151, 3, 0, 0, 0);"),
    Attempt("descriptors", "all of them",
            'char p[] = "x"; for (long i = 0; i < 1 << 22 && r >= 0; i++) r = call(319, p, 0, 0, 0);',
            allowed=frozenset({errno.EMFILE}), exhausts=True),
    Attempt("descriptors", "copies of one",
            "for (long i = 0; i < 1 << 22 && r >= 0; i++) r = call(32, 0, 0, 0, 0);",
            allowed=frozenset({errno.EMFILE}), exhausts=True),
    Attempt("threads", "without end", r"""
    for (long i = 0; i < 1 << 20 && r >= 0; i++) {
        long stack = call6(9, 0, 16384, 3, 0x22, -1, 0) + 16384;
        if (stack < 0) { r = stack; break; }
        volatile long v[2] = {stack, 0};
        __asm__ volatile(
            "lea -256(%%rsp), %%rsp\n push %%rax\n push %%rbx\n push %%rcx\n push %%rdx\n push %%rsi\n push %%rdi\n"
            "push %%r8\n push %%r10\n push %%r11\n push %0\n pop %%rbx\n"
            "mov $56, %%eax\n mov $0x50f00, %%edi\n mov (%%rbx), %%rsi\n xor %%edx, %%edx\n xor %%r10, %%r10\n"
            "xor %%r8, %%r8\n syscall\n test %%rax, %%rax\n jnz 2f\n1: mov $34, %%eax\n syscall\n jmp 1b\n"
            "2: mov %%rax, 8(%%rbx)\n pop %%r11\n pop %%r10\n pop %%r8\n pop %%rdi\n pop %%rsi\n pop %%rdx\n"
            "pop %%rcx\n pop %%rbx\n pop %%rax\n lea 256(%%rsp), %%rsp"
            : : "r"((long)v) : "memory");
        r = v[1];
    }""", allowed=frozenset()),
    Attempt("output", "a printed flood",
            'char p[4096]; for (int i = 0; i < 4096; i++) p[i] = 88;'
            " for (long i = 0; i < 1 << 24; i++) r = call(1, 1, p, 4096, 0);", allowed=frozenset()),
    Attempt("output", "one endless file",
            'char p[] = "@CACHE@/flood"; long fd = call(2, p, 01101, 0600, 0); r = call(285, fd, 0, 0, 1L << 40);'
            " call(87, p, 0, 0, 0);", allowed=frozenset({errno.EFBIG, errno.EPERM})),
    # Hanging.
    Attempt("hang", "in the launch", "volatile int on = 1; while (on) {}", allowed=frozenset(), seconds=1),
    Attempt("hang", "asleep in the launch", "while (1) call(34, 0, 0, 0, 0);", allowed=frozenset(), seconds=1),
    Attempt("hang", "stopped by itself", "r = call(62, call(39, 0, 0, 0, 0), 19, 0, 0);", allowed=frozenset(), seconds=1),
    Attempt("hang", "deaf to signals in the launch",
            "long s[4] = {1, 0, 0, 0}; for (int n = 1; n < 65; n++) call(13, n, s, 0, 8);"
            " volatile int on = 1; while (on) {}", allowed=frozenset(), seconds=1),
    # The pipe.
    Attempt("pipe", "one byte, then silence (H2)",
            "char p[] = {0}; call6(44, @SOCKET@, (long)p, 1, 0, 0, 0); while (1) call(34, 0, 0, 0, 0);",
            allowed=frozenset(), seconds=1),
    Attempt("pipe", "a length, then silence",
            "long p[] = {1000}; call6(44, @SOCKET@, (long)p, 8, 0, 0, 0); while (1) call(34, 0, 0, 0, 0);",
            allowed=frozenset(), seconds=1),
    Attempt("pipe", "a length that nobody has memory for",
            "long p[] = {1L << 60}; call6(44, @SOCKET@, (long)p, 8, 0, 0, 0); while (1) call(34, 0, 0, 0, 0);",
            allowed=frozenset()),
    Attempt("pipe", "what is no answer",
            'char p[] = "\\x05\\0\\0\\0\\0\\0\\0\\0a[[[["; call6(44, @SOCKET@, (long)p, 13, 0, 0, 0);'
            " while (1) call(34, 0, 0, 0, 0);", allowed=frozenset()),
    Attempt("pipe", "that it has begun, without end",
            'char p[] = "\\x05\\0\\0\\0\\0\\0\\0\\0bnull"; while (1) call6(44, @SOCKET@, (long)p, 13, 0, 0, 0);',
            allowed=frozenset(), seconds=1),
    Attempt("pipe", "a flood",
            "char p[4096] = {1}; while (1) call6(44, @SOCKET@, (long)p, 4096, 0, 0, 0);", allowed=frozenset()),
    Attempt("pipe", "hanging up, and going on",
            "call(48, @SOCKET@, 2, 0, 0); while (1) call(34, 0, 0, 0, 0);", allowed=frozenset()),
    # Crashing.
    Attempt("crash", "an address that is not there", "*(volatile long *)16 = 1;", allowed=frozenset()),
    Attempt("crash", "an instruction that is none", '__asm__ volatile("ud2");', allowed=frozenset()),
    Attempt("crash", "leaving with status 0", "call(231, 0, 0, 0, 0);", allowed=frozenset()),
    Attempt("crash", "aborting", "for (int i = 0; i < 9; i++) r = call(234, call(39, 0, 0, 0, 0), call(186, 0, 0, 0, 0), 6, 0);",
            allowed=frozenset()),
]  # fmt: skip

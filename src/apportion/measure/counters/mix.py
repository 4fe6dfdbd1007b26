"""The instruction mix of a program: machine code that was executed, put into classes with capstone's help.

An instruction is control flow, floating-point arithmetic, integer arithmetic (with comparisons, address
computations and conditional moves), or something else; besides, it is one of memory when it reads or writes
memory, as processors count it: `add eax, [rbx]` and `call` are both.

`independent_ratio` is the part of pairs, of one instruction executed right after another, in which the second
reads no register that the first wrote. Pairs that begin with control flow are left out (sources that see
blocks of code do not know what follows a jump), and so are flags, because processors fuse a comparison and
its jump. Every source counts by this definition.

Ratios are parts of all executed instructions. Where some were executed that could not be read (code made at
run time, seen by a source that reads files), up to `MOST_UNKNOWN` of them make the ratios estimated, and more
make them missing.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apportion.errors import InvalidSetting, MissingPackage

MIX_COUNTERS = ("instructions", "int_ratio", "fp_ratio", "mem_ratio", "control_ratio", "independent_ratio")
MOST_UNKNOWN = 0.01
"The part of the executed instructions that may be unknown before ratios of the others say too little."
_X86_INTEGER = re.compile(
    r"(?:lock |rep |repe |repne )?(?:add|adc|adcx|adox|sub|sbb|imul|mul|mulx|idiv|div|inc|dec|neg|and|andn|or"
    r"|xor|not|sh[lr]d?x?|sa[lr]x?|ro[lr]x?|rc[lr]|cmp|cmpxchg\w*|xadd|test|lea|bt[csr]?|bs[fr]|popcnt|lzcnt|tzcnt"
    r"|bls\w+|bextr|bzhi|pdep|pext|bswap|set\w+|cmov\w+|cdq|cdqe|cqo|cwde?|cmps[bwdq]|scas[bwdq]|crc32"
    r"|v?p(?:add|sub|mul|madd|and|or|xor|sll|srl|sra|cmp|min|max|avg|abs|sign|sad|shuf|unpck|pack|blend|alignr"
    r"|movmsk|test|hadd|hsub|ternlog|popcnt|clmul)\w*|v?punpck\w+)"
)
_X86_FLOAT = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|rsqrt|rcp|min|max|hadd|hsub|addsub|dp|round|cmp\w*|u?comi|and|andn|or|xor|blendv?"
    r"|shuf|unpck[lh])[sp][sd]|v?cvt\w+|vfn?m(?:add|sub)\w+"
    r"|fi?(?:add|sub|mul|div|com)\w*|f(?:sqrt|abs|chs|ucom|tst|sin|cos|ptan|patan|prem|rndint|scale|yl2x|2xm1)\w*"
)
_ARM_INTEGER = re.compile(
    r"(?:add|adc|sub|sbc|neg|mul|madd|msub|mneg|[su]mull|[su]mulh|[su]div|and|bic|orr|orn|eor|eon|mvn|lsl|lsr|asr"
    r"|ror|cmp|cmn|tst|ccmp|ccmn|csel|cset|csinc|csinv|csneg|cinc|cneg|clz|cls|rbit|rev|[su]bf\w*|bf\w*|[su]xt\w"
    r"|extr|adr)\w*"
)
_ARM_FLOAT = re.compile(r"(?:f(?!mov)\w+|[su]cvtf)")
_ARM_MEMORY = re.compile(r"(?:ld|st|prfm|cas|swp)\w*")

_PART = re.compile(
    r"[er]?([abcd])[xlh]|[er]?(si|di|sp|bp)l?|(r\d+)[dwb]?|[xyz]mm(\d+)|[wx](\d+)|[bhsdqv](\d+)"
)


@dataclass(frozen=True)
class Decoded:
    """One instruction, as far as the mix needs it."""

    kind: str
    "`control`, `fp`, `int` or `other`."
    memory: bool
    reads: frozenset[str]
    writes: frozenset[str]
    length: int
    repeats: bool = False
    "It is a string instruction that goes on where it is until done."


_DECODED: dict[str, dict[bytes, Decoded | None]] = {}
"Instructions of an architecture that were decoded before."


@dataclass
class MixCounter:
    """Adds up executed instructions by class."""

    architecture: str = platform.machine()

    def __post_init__(self) -> None:
        self._decoded = _DECODED.setdefault(self.architecture, {})
        self._counts = dict.fromkeys(("control", "fp", "int", "other"), 0)
        self._memory = self._independent = self._paired = 0
        self.unknown = 0
        "Executed instructions that could not be taken apart."

    def add(self, code: bytes, before: bytes | None, times: int, *, after: int | None = None) -> None:
        """An instruction was executed so often, after that one; None when that is not known.

        Args:
            after: how often right after that one; each time when not given.
        """
        decoded = self.decode(code)
        if decoded is None:
            self.unknown += times
            return
        self._counts[decoded.kind] += times
        self._memory += times * decoded.memory
        previous = self.decode(before) if before else None
        if previous is not None and previous.kind != "control":
            pairs = times if after is None else after
            self._paired += pairs
            if not decoded.reads & previous.writes:
                self._independent += pairs

    def add_block(self, code: bytes, times: int) -> None:
        """A stretch of code was executed from its beginning to its end so often."""
        before: bytes | None = None
        for one in self.instructions(code):
            self.add(one, before, times)
            before = one

    def instructions(self, code: bytes) -> Iterator[bytes]:
        """A stretch of code, instruction by instruction; what cannot be read at its end is left out."""
        for place, length, _, _ in self._splitter.disasm_lite(code, 0):
            yield code[place : place + length]

    @property
    def unknown_share(self) -> float:
        """The part of the executed instructions that could not be taken apart."""
        return self.unknown / max(1, self.unknown + sum(self._counts.values()))

    def counters(self, *, whole: bool = True) -> dict[str, float | None]:
        """`MIX_COUNTERS`: the number of instructions where all were seen, ratios where enough were."""
        total = sum(self._counts.values())
        found: dict[str, float | None] = dict.fromkeys(MIX_COUNTERS)
        if whole and total + self.unknown:
            found["instructions"] = float(total + self.unknown)
        if not total or self.unknown_share > MOST_UNKNOWN:
            return found
        return found | {
            "int_ratio": self._counts["int"] / total,
            "fp_ratio": self._counts["fp"] / total,
            "mem_ratio": self._memory / total,
            "control_ratio": self._counts["control"] / total,
            "independent_ratio": self._independent / self._paired if self._paired else None,
        }

    def decode(self, code: bytes) -> Decoded | None:
        """The instruction at the beginning of these bytes; None where there is none."""
        if code not in self._decoded:
            found = next(self._disassembler.disasm(code, 0x1000, 1), None)
            self._decoded[code] = None if found is None else self._classified(found)
        return self._decoded[code]

    @cached_property
    def _disassembler(self) -> Any:
        disassembler = self._made()
        disassembler.detail = True
        return disassembler

    @cached_property
    def _splitter(self) -> Any:
        return self._made()  # without details it is ten times as fast

    def _made(self) -> Any:
        try:
            import capstone  # only mixes need it
        except ImportError as error:
            raise MissingPackage(
                "capstone", "counters", "Telling the instruction mix of a program"
            ) from error
        kinds = {
            "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
            "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
        }
        if self.architecture not in kinds:
            raise InvalidSetting(
                f"The instruction mix is told for {' and '.join(kinds)}, not for {self.architecture}"
            )
        return capstone.Cs(*kinds[self.architecture])

    def _classified(self, found: Any) -> Decoded:
        import capstone  # loaded by `_disassembler`

        mnemonic = found.mnemonic
        reads, writes = found.regs_access()
        control = bool(_control_groups(capstone) & set(found.groups)) or mnemonic in ("syscall", "svc")
        if self.architecture == "x86_64":
            memory = any(operand.type == capstone.x86.X86_OP_MEM for operand in found.operands)
            memory |= bool(re.match(r"push|pop|call|ret|leave|(?:rep )?(?:movs|stos|lods)[bwdq]", mnemonic))
            memory &= not mnemonic.startswith(("lea", "nop", "prefetch", "endbr")) or mnemonic == "leave"
            integer, floating = _X86_INTEGER, _X86_FLOAT
        else:
            memory = bool(_ARM_MEMORY.fullmatch(mnemonic))
            integer, floating = _ARM_INTEGER, _ARM_FLOAT
        kind = (
            "control" if control
            else "fp" if floating.fullmatch(mnemonic)
            else "int" if integer.fullmatch(mnemonic)
            else "other"
        )  # fmt: skip
        return Decoded(
            kind,
            memory,
            _whole_registers(found, reads),
            _whole_registers(found, writes),
            found.size,
            mnemonic.startswith("rep"),
        )


def _control_groups(capstone: Any) -> set[int]:
    names = ("JUMP", "CALL", "RET", "INT", "IRET")
    return {getattr(capstone, f"CS_GRP_{name}") for name in names}


def _whole_registers(found: Any, registers: Iterable[int]) -> frozenset[str]:
    """Registers by the name of the whole: `al`, `ax` and `eax` are one, as are `w3` and `x3`."""
    names = (_whole(found.reg_name(register)) for register in registers)
    return frozenset(name for name in names if name not in ("rflags", "eflags", "flags", "nzcv", "rip"))


def _whole(name: str) -> str:
    match = _PART.fullmatch(name)
    if match is None:
        return name
    return next(f"{number} {part}" for number, part in enumerate(match.groups()) if part is not None)

"""Feed mutated LLVM IR to the graph builder, and to LLVM itself, and compare what they say.

    python -m reproduction.fuzzing.ir --mutants 1000000 --seed 1 [--corpus DIR_OF_LL] [--seconds 600]

Each mutant must give a graph or a `MalformedIR` that names a line of the text, within a second; a crash, a
hang or any other error is a finding. With llvmlite installed, a part of the mutants also goes through LLVM:
where both read the text, the graph must equal that of the text as LLVM prints it again (the text as LLVM
understood it), else the answer was silently wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from apportion.errors import ApportionError, MalformedIR
from apportion.jobs import LocalRunner
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source

KERNELS = Path(__file__).parents[2] / "tests" / "kernels"
ALPHABET = ' %@,()[]{}<>*!"=;:#0123456789abcdefixr.-\n'
WORDS = (
    *(
        "%0",
        "@f",
        "i32",
        "ptr",
        "label",
        "define",
        "declare",
        "!0",
        "null",
        "undef",
        "void",
        "metadata",
        "asm",
    ),
    *("{", "}", "(", ")", "[", "]", "<", "x", "to", "...", "alias", "ret", "br", "phi", "addrspace(1)"),
    *("-1", "4294967296", "99999999999"),
)
PLAIN = GraphOptions(recover_pointees=False)
BATCH = 200
SLOW_SECONDS = 1.0
_AT_ONCE = 250
"Batches between two looks at the time."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="more IR to start from: a folder of .ll files")
    parser.add_argument("--compare", type=float, default=0.2, help="the part that goes through LLVM too")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    options = parser.parse_args()
    more = sorted(options.corpus.glob("**/*.ll")) if options.corpus else []
    seeds = own_ir() + [path.read_text(errors="replace") for path in more]
    seeds = [text for text in seeds if len(text) < 20_000]
    total: Counter[str] = Counter()
    findings: list[str] = []
    batches = [
        (seeds, options.seed * 1_000_003 + k, options.compare) for k in range(-(-options.mutants // BATCH))
    ]
    start = time.monotonic()
    for first in range(0, len(batches), _AT_ONCE):
        if time.monotonic() - start > options.seconds:
            break
        for outcome in LocalRunner(deadline_seconds=120).map(batch, batches[first : first + _AT_ONCE]):
            if outcome.error is not None:
                findings.append(f"batch {first + outcome.item_index}: {outcome.error}")
                continue
            counts, found = outcome.unwrap()
            total.update(counts)
            findings += found
            if sys.stderr.isatty():
                done = total["graph"] + total["malformed"]
                print(f"\r{done:,} mutants, {len(findings)} findings", end="", file=sys.stderr)
    tried = total["graph"] + total["malformed"]
    print(f"{len(seeds)} seeds, {tried:,} mutants, {time.monotonic() - start:.0f} s")
    for kind, count in total.most_common():
        print(f"  {count:8,}  {kind}")
    for finding in findings[:20]:
        print("FINDING", finding)
    print(f"{len(findings)} findings")
    return bool(findings)


def own_ir() -> list[str]:
    """IR of our own small sources, unoptimised and optimised."""
    sources = [Source.read(path) for path in sorted(KERNELS.glob("*"))]
    return [ir_of(source, CompileOptions(optimization=level)) for source in sources for level in ("0", "2")]


def mutants(seeds: list[str], seed: int, count: int) -> Iterator[str]:
    """Texts that are almost IR."""
    generator = random.Random(seed)
    for _ in range(count):
        text = generator.choice(seeds)
        for _ in range(generator.choice((1, 1, 2, 3))):
            text = mutated(text, generator)
        yield text


def mutated(text: str, generator: random.Random) -> str:
    """The text with one small change."""
    place = generator.randrange(len(text) + 1)
    lines = text.split("\n")
    line, other = generator.randrange(len(lines)), generator.randrange(len(lines))
    match generator.randrange(8):
        case 0:
            return text[:place] + generator.choice(ALPHABET) + text[place + 1 :]
        case 1:
            return text[:place] + text[place + generator.choice((1, 2, 5, 40)) :]
        case 2:
            return text[:place] + generator.choice(WORDS) + text[place:]
        case 3:
            lines[line : line + 1] = []
        case 4:
            lines.insert(other, lines[line])
        case 5:
            lines[line], lines[other] = lines[other], lines[line]
        case 6:
            words = list(re.finditer(r"[%@]?[\w.]+", text))
            if not words:
                return text
            target, source = generator.choice(words), generator.choice(words)
            return text[: target.start()] + source[0] + text[target.end() :]
        case _:
            return text[:place]
    return "\n".join(lines)


def batch(work: tuple[list[str], int, float]) -> tuple[Counter[str], list[str]]:
    """What became of a few mutants: how many of each kind, and what should not have been."""
    seeds, seed, compare = work
    generator = random.Random(seed)
    counts: Counter[str] = Counter()
    findings: list[str] = []
    compared: list[tuple[int, str, list[str] | None]] = []
    for number, text in enumerate(mutants(seeds, seed, BATCH)):
        start = time.process_time()
        texts: list[str] | None = None
        try:
            texts = sorted(graph_of_ir(text, options=PLAIN).texts())
            counts["graph"] += 1
        except MalformedIR as error:
            counts["malformed"] += 1
            if error.line is None or not 1 <= error.line <= text.count("\n") + 1:
                findings.append(f"{seed}/{number}: a line that is not there: {error}")
        except Exception as error:
            findings.append(f"{seed}/{number}: {type(error).__name__}: {error}")
            continue
        if time.process_time() - start > SLOW_SECONDS:
            findings.append(f"{seed}/{number}: took {time.process_time() - start:.1f} s")
        # LLVM 22 turns typed pointers into opaque ones, so only opaque texts can be compared.
        if generator.random() < compare and "*" not in text:
            compared.append((number, text, texts))
    answers = printed_by_llvm([text for _, text, _ in compared])
    for (number, _, texts), again in zip(compared, answers, strict=False):
        if again is None:
            ours = "so do we" if texts is None else "we read it (attributes, metadata, data layout)"
            counts[f"LLVM refuses, {ours}"] += 1
        elif texts is None:
            counts["LLVM reads it, we refuse"] += 1
        else:
            try:
                same = texts == sorted(graph_of_ir(again, options=PLAIN).texts())
            except ApportionError as error:
                findings.append(f"{seed}/{number}: what LLVM printed is refused: {error}")
                continue
            counts["both read it, same graph" if same else "both read it, other graph"] += 1
            if not same:
                findings.append(f"{seed}/{number}: another graph than LLVM's")
    return counts, findings


def printed_by_llvm(texts: list[str]) -> list[str | None]:
    """Each text as LLVM prints it, None where it does not read it; fewer where LLVM killed itself.

    LLVM aborts the process on some broken texts, so it gets one of its own.
    """
    if importlib.util.find_spec("llvmlite") is None:
        return []
    command = [sys.executable, "-c", _PRINTER]
    done = subprocess.run(
        command, input=json.dumps(texts), capture_output=True, text=True, check=False, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


_PRINTER = """
import json, sys
from llvmlite import binding
for text in json.load(sys.stdin):
    try:
        printed = str(binding.parse_assembly(text, binding.create_context()))
    except RuntimeError:
        printed = None
    print(json.dumps(printed), flush=True)
"""


if __name__ == "__main__":
    sys.exit(main())

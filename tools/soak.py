"""Fuzzing, kills, failing disks, hostile kernels, load and abuse for a chosen time, by itself: `make soak`.

    python tools/soak.py --seconds 3600 [--out out/soak] [--only fuzz-ir kills]

Each part has its part of the time, and another seed every day. What it prints is in OUT/NAME.txt, its page or
record beside that. Ends with 1 if anything was not survived, or did not end by itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SPARE_SECONDS = 600.0
"What a part has to finish what it has begun."
_REQUESTS_A_SECOND = 100
"That a slow machine answers too."


@dataclass(frozen=True)
class Part:
    """One of the things that are tried."""

    name: str
    portion: float
    "Of the time."
    words: str
    "What Python is called with; `{seconds}`, `{seed}`, `{requests}` and `{out}` stand for what is chosen."

    def command(self, seconds: float, seed: int, out: Path) -> list[str]:
        """The same with what is chosen."""
        chosen = {"seconds": f"{seconds:.0f}", "seed": str(seed), "out": str(out),
                  "requests": str(max(100, int(seconds * _REQUESTS_A_SECOND)))}  # fmt: skip
        return [sys.executable, *(word.format(**chosen) for word in self.words.split())]


PARTS = (
    Part("fuzz-ir", 0.25, "-m reproduction.fuzzing.ir --mutants 10000000 --seed {seed} --seconds {seconds}"),
    Part(
        "fuzz-repetition", 0.2,
        "-m reproduction.fuzzing.repetition --cases 10000000 --seed {seed} --seconds {seconds}"
        " --out {out}/repetition.md",
    ),
    Part(
        "kills", 0.25,
        "-m reproduction kills --times 100000 --seed {seed} --seconds {seconds} --out {out}/kills.md",
    ),
    Part("faults", 0.1, "-m reproduction faults --seconds {seconds} --out {out}/faults.md"),
    Part("hostile", 0.1, "-m tests.hostile {out}/hostile.json --driver pocl --seconds {seconds}"),
    Part(
        "load", 0.06,
        "-m reproduction.service.load {out}/load.json --known {requests} --new 100 --long {requests}",
    ),
    Part("abuse", 0.04, "-m reproduction.service.abuse {out}/abuse.json --requests {requests}"),
)  # fmt: skip


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument(
        "--seed", type=int, default=int(time.time() // 86_400), help="usually the day's number"
    )
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    chosen = parser.parse_args()
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    parts = [part for part in PARTS if chosen.only is None or part.name in chosen.only]
    whole = sum(part.portion for part in parts)
    return max([_tried(part, chosen.seconds * part.portion / whole, chosen.seed, out) for part in parts])


def _tried(part: Part, seconds: float, seed: int, out: Path) -> int:
    """1 if something was not survived; said in one line."""
    started = time.monotonic()
    with (out / f"{part.name}.txt").open("w") as said:
        try:
            status: int | str = subprocess.run(
                part.command(seconds, seed, out), cwd=ROOT, stdout=said, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, check=False, timeout=seconds + _SPARE_SECONDS,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = "it did not end"
    verdict = "survived" if status == 0 else f"NOT SURVIVED ({status})"
    print(f"{part.name}: {verdict}, {time.monotonic() - started:.0f} s: {said.name}", flush=True)
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

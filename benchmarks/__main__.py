"""Run all benchmarks, or those named."""

import sys
from importlib import import_module

BENCHMARKS = (
    "graphs", "analysis", "forward", "predict", "configurations", "featurise", "ranking", "coexecution",
    "counters", "exactness", "job_queue",
)  # fmt: skip


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"No benchmark called {unknown[0]!r}. There are: {', '.join(BENCHMARKS)}.")
    for name in names or BENCHMARKS:
        print(f"== {name} ==")
        sys.argv = [name]  # a benchmark has options of its own; here it runs with none
        import_module(f"benchmarks.{name}").main()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])

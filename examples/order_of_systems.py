"""On which of these systems would a program run fastest, from what it does and one time that is known?"""

from __future__ import annotations

import apportion

COUNTERS: dict[str, float | None] = {
    "total_instruction_count": 4e8,
    "total_memory_footprint": 2e6,
    "workitems": 1e6,
    "barriers_per_instruction": 0.0,
    "branch_entropy_yokota": 0.2,
    "branch_entropy_average_linear": 0.1,
    "global_memory_address_entropy": 20.0,
    "local_memory_address_entropy_10": 10.0,
}


def main() -> None:
    for seconds in ({}, {"gtx1080": 0.0004}):
        answer = apportion.relative_performance(apportion.Profile("mine", COUNTERS, seconds))
        known = "counters alone" if not seconds else "counters and the time on gtx1080"
        if answer.abstains:
            print(f"{known}: unlike every known run (familiarity {answer.familiarity:.2f}); measure it")
            continue
        print(f"{known}, familiarity {answer.familiarity:.2f}, fastest first:")
        for system in answer.order:
            print(
                f"  {system:16} {answer.vector[system]:+.2f} ± {answer.sigma[system]:.2f} (log2 of the time)"
            )


if __name__ == "__main__":
    main()

"""Time the relative performance of a whole queue of jobs, all at once and one by one.

Jobs are known runs whose counters are moved a little, by a seed. Times are those of the CPU. Both ways must
say the same.

    python -m benchmarks job_queue
"""

from __future__ import annotations

import time

import numpy as np

from apportion.advise.relative_answers import shipped
from reproduction.scheduling.speeds import drawn_queue

JOBS, ONE_BY_ONE = 10_000, 500


def main() -> None:
    model = shipped()
    known = model.reference
    queue = drawn_queue(known, JOBS)
    model.answer(queue[:1])  # fits what answers need
    began = time.process_time()
    together = model.answer(queue)
    passed = time.process_time() - began
    began = time.process_time()
    alone = [model.vector(model.row_of(job.counters)[0]) for job in queue[:ONE_BY_ONE]]
    each = (time.process_time() - began) / ONE_BY_ONE
    difference = max(
        float(np.abs(np.array([answer.value[name] for name in known.systems]) - one.vector).max())
        for answer, one in zip(together, alone, strict=False)
    )
    if difference > 1e-9:
        raise SystemExit(f"A job in a queue is answered otherwise than alone, by {difference}")
    print(f"{JOBS:,} jobs over {len(known.systems)} systems at once: {passed:.2f} s of CPU: goal 1 s")
    print(f"one by one: {1e3 * each:.2f} ms each; at once is {each * JOBS / passed:.1f} times faster")


if __name__ == "__main__":
    main()

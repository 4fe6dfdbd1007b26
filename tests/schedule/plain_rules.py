"""The rules of Gavel's reference results in plain Python, written from their description alone: slow, and
nothing shared with the simulator, so that both can be held against each other."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

ROUND, BETWEEN, HEAD_START = 360.0, 1920.0, 180.0


@dataclass(frozen=True)
class Job:
    arrival: float
    width: int
    steps: int
    speed: tuple[float, ...]  # steps per second by type; 0: cannot run


def run_to_end(jobs, slots, policy):
    """(type, start, end) of each job without preemption: eft, fastest, round_robin or easy_fastest."""
    chosen = []
    for number, job in enumerate(jobs):
        able = [at for at, speed in enumerate(job.speed) if speed > 0 and job.width <= slots[at]]
        if policy == "round_robin":
            at = number % len(slots)
            while at not in able:
                at = (at + 1) % len(slots)
            chosen.append(at)
        elif policy == "eft":
            chosen.append(None)
        else:
            chosen.append(min(able, key=lambda at: (job.steps / job.speed[at], at)))
    if policy == "easy_fastest":
        return _easy(jobs, slots, chosen)
    free_from = [[0.0] * count for count in slots]  # when each worker becomes free
    rows = []
    for job, only in zip(jobs, chosen, strict=True):
        options = []
        for at, speed in enumerate(job.speed):
            if speed > 0 and job.width <= slots[at] and only in (None, at):
                start = max(job.arrival, sorted(free_from[at])[job.width - 1])
                options.append((start + job.steps / speed, at, start))
        end, at, start = min(options)
        free_from[at] = sorted(free_from[at])[job.width :] + [end] * job.width
        rows.append((at, start, end))
    return rows


def _easy(jobs, slots, chosen):
    rows = [None] * len(jobs)
    for at, count in enumerate(slots):
        coming = [number for number, only in enumerate(chosen) if only == at]
        queue, running = [], []  # running: (end, width)
        while coming or queue:
            now = min(
                [end for end, _ in running] + ([jobs[coming[0]].arrival] if coming else []), default=0.0
            )
            running = [one for one in running if one[0] > now]
            while coming and jobs[coming[0]].arrival <= now:
                queue.append(coming.pop(0))

            def begin(number, at=at, now=now, running=running, queue=queue):
                end = now + jobs[number].steps / jobs[number].speed[at]
                rows[number] = (at, now, end)
                running.append((end, jobs[number].width))
                queue.remove(number)

            free = count - sum(width for _, width in running)
            while queue and jobs[queue[0]].width <= free:
                free -= jobs[queue[0]].width
                begin(queue[0])
            if not queue:
                continue
            shadow, there = now, free
            for end in sorted({end for end, _ in running}):
                there = free + sum(width for other, width in running if other <= end)
                shadow = end
                if there >= jobs[queue[0]].width:
                    break
            spare = there - jobs[queue[0]].width
            for number in queue[1:]:
                width = jobs[number].width
                ends = now + jobs[number].steps / jobs[number].speed[at]
                if width > free or (ends > shadow and width > spare):
                    continue
                if ends > shadow:
                    spare -= width
                free -= width
                begin(number)
    return rows


class Rounds:
    """Rounds of 360 s with one of the policies that need no solver.

    Args:
        names: of the types, in their order.
    """

    def __init__(self, jobs, slots, names, policy, *, seed=0, drop=False):
        self.jobs, self.slots, self.names, self.policy, self.drop = jobs, slots, names, policy, drop
        self.types = range(len(slots))
        self.draws = random.Random(seed)
        self.shuffle = random.Random(seed + 5).shuffle
        self.kept = {}
        self.knows = policy.endswith("_perf") or policy == "allox"

    def run(self):
        jobs, types = self.jobs, self.types
        left = {number: job.steps for number, job in enumerate(jobs)}
        end, tries, dropped = {}, {}, set()
        time_of, deficit, share = {}, {}, {}
        total = [0.0 for _ in types]
        active, coming = [], list(range(len(jobs)))
        now, asked, round_end, changed, micro_tasks = jobs[0].arrival, 0.0, 0.0, False, 0

        def admit():
            nonlocal changed
            while coming and jobs[coming[0]].arrival <= now:
                number = coming.pop(0)
                active.append(number)
                time_of[number] = [HEAD_START for _ in types]
                deficit[number] = [0.0 for _ in types]
                changed = True

        admit()
        while active or coming:
            if changed and (now - asked >= BETWEEN or asked == 0):
                for number in active:
                    for at in types:
                        had = time_of[number][at] - HEAD_START
                        owed = share.get(number, [0.0 for _ in types])[at] * (now - asked)
                        deficit[number][at] += owed - had
                        time_of[number][at] = HEAD_START
                total = [sum(HEAD_START for _ in active) for _ in types]
                share = self.shares(active, left, now)
                asked, changed = now, False
            picked = self.choose(active, share, time_of, deficit, total)
            if not picked:
                if coming:
                    now = jobs[coming[0]].arrival
                    admit()
                else:
                    asked, changed = 0.0, True
                continue
            pieces = []
            for number, at in picked:
                speed = jobs[number].speed[at]
                steps = min(max(1, math.floor(speed * ROUND)), left[number])
                pieces.append((-(now + steps / speed), number, at, steps))
            now = -min(pieces)[0]
            for minus, number, at, steps in sorted(pieces):
                micro_tasks += 1
                time_of[number][at] += -minus - round_end
                total[at] += -minus - round_end
                if self.drop and left[number] < jobs[number].width:
                    tries[number] = tries.get(number, 0) + 1
                    if tries[number] < 5:
                        continue
                    dropped.add(number)
                    left[number] = 0
                else:
                    left[number] -= steps
                if left[number] == 0:
                    end[number] = -minus
                    active.remove(number)
                    changed = True
            round_end = now
            admit()
        return end, dropped, micro_tasks

    def choose(self, active, share, time_of, deficit, total):
        order = list(self.types)
        if not self.knows:
            self.shuffle(order)
        room, taken, picked = list(self.slots), set(), []
        for at in order:
            rows = []
            for number in active:
                x = share[number][at] if number in share else 0.0
                priority = 0.0
                if x != 0 and self.jobs[number].speed[at] != 0:
                    priority = x / (time_of[number][at] / total[at])
                rows.append((priority, deficit[number][at], x, number))
            for priority, _, _, number in sorted(rows, key=lambda row: row[:3], reverse=True):
                if number in taken or self.jobs[number].speed[at] == 0 or self.jobs[number].width > room[at]:
                    continue
                if priority == 0 and self.policy.startswith("fifo"):
                    continue
                taken.add(number)
                room[at] -= self.jobs[number].width
                if number in share:
                    picked.append((number, at))
        return picked

    def shares(self, active, left, now):
        return getattr(self, f"_{self.policy}")(active, left, now)

    def _isolated(self, active, left, now):
        found = {}
        for number in active:
            x = [count / (len(active) * self.jobs[number].width) for count in self.slots]
            found[number] = [value / max(1.0, sum(x)) for value in x]
        return found

    def _fifo_perf(self, active, left, now):
        room, found = list(self.slots), {number: [0.0 for _ in self.types] for number in active}
        for number in active:
            job = self.jobs[number]
            able = [at for at in self.types if job.width <= room[at]]
            if not able:
                break
            at = max(able, key=lambda at: job.speed[at])
            if job.speed[at] == 0:
                continue
            room[at] -= job.width
            found[number][at] = 1.0
        return found

    def _alphabetical(self):
        return sorted(self.types, key=lambda at: self.names[at])

    def _fifo_fixed(self, active, left, now):
        self.kept = {number: at for number, at in self.kept.items() if number in active}
        room = list(self.slots)
        for number, at in self.kept.items():
            room[at] -= self.jobs[number].width
        for number in active:
            if number in self.kept:
                continue
            job = self.jobs[number]
            able = [at for at in self._alphabetical() if job.speed[at] > 0 and job.width <= room[at]]
            if not able:
                break
            self.kept[number] = self.draws.choice(able)
            room[self.kept[number]] -= job.width
        return self._ones(active)

    def _allox(self, active, left, now):
        self.kept = {number: at for number, at in self.kept.items() if number in active}
        room = list(self.slots)
        for at in self.kept.values():
            room[at] -= 1
        waiting = [number for number in active if number not in self.kept]
        workers = [at for at in self._alphabetical() for _ in range(room[at])]
        if waiting and workers:
            cost = [
                [
                    place * (left[number] / self.jobs[number].speed[at]) + (now - self.jobs[number].arrival)
                    if self.jobs[number].speed[at] > 0
                    else 1e18
                    for place in range(1, len(waiting) + 1)
                    for at in workers
                ]
                for number in waiting
            ]
            first = {}
            for row, column in zip(*linear_sum_assignment(cost), strict=True):
                place, worker = divmod(int(column), len(workers))
                if worker not in first or place > first[worker][0]:
                    first[worker] = (place, waiting[row])
            for worker, (_, number) in first.items():
                self.kept[number] = workers[worker]
        return self._ones(active)

    def _ones(self, active):
        return {
            number: [1.0 if self.kept.get(number) == at else 0.0 for at in self.types] for number in active
        }

"""The mix of the instructions that stand in a program, executed or not: a description, not a count."""

from __future__ import annotations

from apportion.errors import InvalidSetting
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.counter_source import CounterSource, Reading
from apportion.measure.counters.elf import ObjectFile
from apportion.measure.counters.mix import MixCounter

_MOST_BYTES = 1 << 20


class StaticSource(CounterSource):
    """Reads the command's executable, without the libraries that it loads."""

    name = "static"
    counts = dict.fromkeys(("int_ratio", "fp_ratio", "mem_ratio", "control_ratio"), "static")

    def measure(self, command: Command) -> Reading:
        program = ObjectFile.read(command.program)
        if program is None:
            raise InvalidSetting(
                f"{command.program} is not a program for this machine, but a script or the like"
            )
        mix = MixCounter()
        left = _MOST_BYTES
        for code in program.code():
            mix.add_block(code[:left], 1)
            left = max(0, left - len(code))
        found = mix.counters(whole=False)
        return Reading({name: found[name] for name in self.counts}, execute(command).seconds)

"""Machine code put into classes: a few instructions of x86-64 and of AArch64, as bytes."""

from __future__ import annotations

import pytest

from apportion.measure.counters.mix import MixCounter

pytest.importorskip("capstone")

ADD = bytes.fromhex("01d8")  # add eax, ebx
MOVE = bytes.fromhex("89c2")  # mov edx, eax
LOAD = bytes.fromhex("8b03")  # mov eax, [rbx]
ADD_MEMORY = bytes.fromhex("0303")  # add eax, [rbx]
FLOAT = bytes.fromhex("f20f58c1")  # addsd xmm0, xmm1
JUMP = bytes.fromhex("74fe")  # je
CALL = bytes.fromhex("e800000000")
NOTHING = bytes.fromhex("0f1f00")  # nop dword ptr [rax]


@pytest.mark.parametrize(
    ("code", "kind", "memory"),
    [
        (ADD, "int", False), (MOVE, "other", False), (LOAD, "other", True), (ADD_MEMORY, "int", True),
        (FLOAT, "fp", False), (JUMP, "control", False), (CALL, "control", True), (NOTHING, "other", False),
        (bytes.fromhex("488d0418"), "int", False),  # lea rax, [rax + rbx]
        (bytes.fromhex("50"), "other", True),  # push rax
        (bytes.fromhex("c5f158c2"), "fp", False),  # vaddpd xmm0, xmm1, xmm2
        (bytes.fromhex("660ffec1"), "int", False),  # paddd xmm0, xmm1
        (bytes.fromhex("0f05"), "control", False),  # syscall
    ],
)  # fmt: skip
def test_an_instruction_of_x86_has_a_class(code, kind, memory):
    decoded = MixCounter("x86_64").decode(code)
    assert decoded is not None
    assert (decoded.kind, decoded.memory, decoded.length) == (kind, memory, len(code))


@pytest.mark.parametrize(
    ("code", "kind", "memory"),
    [
        ("2000028b", "int", False),  # add x0, x1, x2
        ("200040f9", "other", True),  # ldr x0, [x1]
        ("2028621e", "fp", False),  # fadd d0, d1, d2
        ("c0035fd6", "control", False),  # ret
        ("00000014", "control", False),  # b
    ],
)
def test_an_instruction_of_aarch64_has_a_class(code, kind, memory):
    decoded = MixCounter("aarch64").decode(bytes.fromhex(code))
    assert decoded is not None
    assert (decoded.kind, decoded.memory) == (kind, memory)


def test_a_block_is_counted_as_often_as_it_was_executed():
    mix = MixCounter("x86_64")
    mix.add_block(LOAD + ADD + MOVE + FLOAT, 10)
    mix.add_block(JUMP, 30)
    found = mix.counters()
    assert found["instructions"] == 70
    assert found["int_ratio"] == 10 / 70
    assert found["fp_ratio"] == 10 / 70
    assert found["mem_ratio"] == 10 / 70
    assert found["control_ratio"] == 30 / 70
    # add reads eax, which the load wrote; mov reads eax, which add wrote; addsd reads neither.
    assert found["independent_ratio"] == pytest.approx(1 / 3)


def test_parts_of_a_register_are_the_register():
    mix = MixCounter("x86_64")
    mix.add(bytes.fromhex("4801d8"), bytes.fromhex("b001"), 1)  # add rax, rbx after mov al, 1
    assert mix.counters()["independent_ratio"] == 0


def test_of_instructions_not_all_of_which_were_seen_the_number_is_missing():
    mix = MixCounter("x86_64")
    mix.add(ADD, None, 5)
    assert mix.counters(whole=False)["instructions"] is None
    assert mix.counters(whole=False)["int_ratio"] == 1
    assert mix.counters()["independent_ratio"] is None


def test_nothing_executed_is_nothing_known():
    assert set(MixCounter("x86_64").counters().values()) == {None}

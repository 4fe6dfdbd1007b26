"""What moved an answer: parts that add up to it, on the instructions that carry them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from apportion.advise.explain import TO_CPU, TO_GPU, explain
from apportion.advise.predictor import pairs, predict
from apportion.program.source import Source

KERNELS = Path(__file__).parents[1] / "kernels"
KERNEL = """
declare i64 @_Z13get_global_idj(i32)
define spir_kernel void @scale(float* %x) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %w = fmul float %v, 2.0
  store float %w, float* %p
  ret void
}
"""
LAUNCH = {"local_size": 64, "bytes": 1 << 22}


def source() -> Source:
    return Source(KERNEL, "llvm", "scale.ll")


@pytest.mark.parametrize("pair", ["cgo17-nvidia", "cgo17-amd"])
def test_the_parts_and_the_base_are_the_predicted_share(pair: str) -> None:
    assert pair in pairs()
    found = explain(source(), **LAUNCH, pair=pair)
    assert found.share / 100 == pytest.approx(predict(source(), **LAUNCH, pair=pair).cpu_share, abs=1e-6)


def test_parts_add_up_for_a_compiled_kernel_with_loops_too() -> None:
    pytest.importorskip("ziglang")
    path = KERNELS / "histogram.cl"
    found = explain(path, **LAUNCH, kernel="*")
    assert found.share / 100 == pytest.approx(predict(path, **LAUNCH, kernel="*").cpu_share, abs=1e-6)
    assert len(found.lines) > 10


def test_instructions_are_named_as_the_program_prints_them() -> None:
    found = explain(source(), **LAUNCH)
    texts = [line.text for line in found.lines]
    assert any(text.startswith("%w = fmul float %v") for text in texts)
    assert {line.function for line in found.lines} == {"scale"}
    assert [abs(line.added) for line in found.strongest] == sorted(
        (abs(line.added) for line in found.lines), reverse=True
    )


def test_what_is_not_there_and_the_programs_size_have_parts_of_their_own() -> None:
    found = explain(source(), **LAUNCH)
    assert "instruction phi" in found.absent or "deepest loop" in found.absent
    assert set(found.whole) <= {"nodes", "control edges", "data edges", "call edges", "functions", "blocks"}
    assert "bytes moved" in found.inputs


def test_more_bytes_move_what_the_bytes_add() -> None:
    few, many = (explain(source(), local_size=64, bytes=size).inputs for size in (1 << 10, 1 << 30))
    assert few["bytes moved"] != many["bytes moved"]


def test_the_picture_is_an_svg_with_coloured_instructions() -> None:
    found = explain(source(), **LAUNCH)
    drawn = found.picture()
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    legend = {
        text.text: float(text.attrib["x"]) for text in root.iter() if text.attrib.get("class") == "legend"
    }
    assert {"towards the CPU", "towards the GPU"} < legend.keys()
    # All of it is inside, however narrow the program is.
    assert all(x + 6 * len(word or "") <= float(root.attrib["width"]) for word, x in legend.items())
    assert any(f'fill:{colour}"' in drawn.split("<g ", 1)[1] for colour in (TO_CPU[2], TO_GPU[2]))

"""JAX functions are lowered for shapes, never run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.cli import main
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.program.hlo.jax import function_of, hlo_of, spec_of, text_of
from apportion.program.hlo.module import graph_of_hlo

needs_jax = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("jax") is None, reason="jax is not installed"
)


def test_shapes_are_read_and_written_as_hlo_has_them():
    assert spec_of("bf16[128, 256]") == ((128, 256), "bfloat16")
    assert spec_of("f32[]") == ((), "float32")
    assert text_of(((3, 4), "float16")) == "f16[3,4]"


@pytest.mark.parametrize("text", ["f32", "f33[2]", "[2]", "f32[a]"])
def test_what_is_no_shape_is_refused(text: str):
    with pytest.raises(InvalidSetting, match=r"is no shape\. Write the type and the dimensions"):
        spec_of(text)


def test_a_function_is_found_in_a_module_or_a_file(tmp_path):
    (tmp_path / "mine.py").write_text("def double(x):\n    return x * 2\n")
    assert function_of(f"{tmp_path / 'mine.py'}:double")(4) == 8
    assert function_of("math:sqrt")(9) == 3
    with pytest.raises(InvalidSetting, match="has no 'cube'"):
        function_of("math:cube")
    with pytest.raises(UnreadableFile, match="Cannot import nowhere"):
        function_of("nowhere:f")
    with pytest.raises(UnreadableFile, match="There is no file"):
        function_of("gone.py:f")
    with pytest.raises(InvalidSetting, match="is not written module:function"):
        function_of("sqrt")


@needs_jax
def test_the_command_featurises_a_function(tmp_path, capsys):
    (tmp_path / "layer.py").write_text("def layer(x, w):\n    return (x @ w).sum(0)\n")
    words = ["rank", "featurise", f"{tmp_path / 'layer.py'}:layer", "--shapes", "f32[8,16]", "f32[16,4]"]
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--out", str(tmp_path / "g.npz"), "--json"])
    assert not leaving.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed["configurable"] == 1
    with np.load(tmp_path / "g.npz") as arrays:
        assert len(arrays["node_opcode"]) == printed["nodes"]


@needs_jax
def test_a_function_that_does_not_take_such_arrays_is_refused_in_jaxs_words():
    matmul = function_of("jax.numpy:matmul")
    with pytest.raises(InvalidSetting, match="JAX cannot lower matmul for such arrays: "):
        hlo_of(matmul, [((2, 3), "float32"), ((2, 3), "float32")])


@needs_jax
def test_an_optimised_module_is_what_xla_leaves_of_a_function():
    plain = graph_of_hlo(hlo_of(lambda x: x * 2 + 1, [((4,), "float32")]))
    optimised = graph_of_hlo(hlo_of(lambda x: x * 2 + 1, [((4,), "float32")], optimised=True))
    assert len(optimised.node_opcode) > 0
    assert not np.array_equal(plain.node_opcode, optimised.node_opcode)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.program.kernel.access import ArgumentAccess, KernelAccess
from apportion.program.kernel.bounds import IndexProgram, NDRange
from apportion.program.kernel.signature import KernelArgument, Signature
from apportion.runtime.arguments import arguments_for, save
from apportion.runtime.base import LocalMemory

SIGNATURE = Signature(
    "k",
    (
        KernelArgument(0, "x", "float*", "global", element_bytes=4),
        KernelArgument(1, "where", "int*", "global", element_bytes=4),
        KernelArgument(2, "out", "float4*", "global", element_bytes=16),
        KernelArgument(3, "kept", "int*", "local", element_bytes=4),
        KernelArgument(4, "n", "int", "value", element_bytes=4),
        KernelArgument(5, "factor", "float", "value", element_bytes=4),
    ),
)
ACCESS = KernelAccess(
    "k",
    (
        ArgumentAccess(0, "x", "global", reads=True),
        ArgumentAccess(1, "where", "global", reads=True, is_index=True),
        ArgumentAccess(2, "out", "global", writes=True, merge="slice"),
        ArgumentAccess(3, "kept", "local"),
        ArgumentAccess(4, "n", "value"),
        ArgumentAccess(5, "factor", "value"),
    ),
    IndexProgram(()),
    False,
)
SPAN = NDRange((128,), (32,))


def test_what_is_not_given_is_made_from_the_signature_and_the_size() -> None:
    values = arguments_for(SIGNATURE, ACCESS, SPAN)
    assert list(values) == ["x", "where", "out", "kept", "n", "factor"]
    x, where, out, kept, n, factor = values.values()
    assert (x.shape, x.dtype) == ((128,), np.float32)  # type: ignore[union-attr]
    assert 0 <= where.min() <= where.max() < 128  # type: ignore[union-attr]
    assert out.tolist() == [0.0] * 512  # type: ignore[union-attr]
    assert kept == LocalMemory(4 * 32)
    assert (n, factor) == (128, 1.0)


def test_the_same_seed_makes_the_same_arrays() -> None:
    one, other, third = (arguments_for(SIGNATURE, ACCESS, SPAN, seed=s)["x"] for s in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_arguments_are_read_as_the_command_line_writes_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    given = [f"x={tmp_path / 'x.npy'}", "where=int32[2*N]=range", "out=float32[8,16]=ones", "kept=local:256",
             "n=0x10", "factor=3.5"]  # fmt: skip
    x, where, out, kept, n, factor = arguments_for(SIGNATURE, ACCESS, SPAN, given).values()
    assert x.tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert where.tolist() == list(range(256))  # type: ignore[union-attr]
    assert (out.shape, out.sum()) == ((8, 16), 128)  # type: ignore[union-attr]
    assert (kept, n, factor) == (LocalMemory(256), 16, 3.5)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("x", InvalidSetting, "Write an argument as name=value, for example x=float32.1024., not 'x'"),
        ("y=1", UnknownName, "No argument called 'y'"),
        ("x=float33[4]", UnknownName, "No type called 'float33'"),
        ("x=float32[0]", InvalidSetting, "A size must be a number above 0, N or a product"),
        ("x=float32[4]=noise", UnknownName, "No filling called 'noise'"),
        ("n=four", InvalidSetting, "n=four: not a number, a .npy file"),
        ("x=missing.npy", UnreadableFile, "Cannot read the array missing.npy"),
    ],
)
def test_what_cannot_be_read_is_refused(given: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        arguments_for(SIGNATURE, ACCESS, SPAN, [given])


def test_an_argument_given_twice_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'n' is given twice"):
        arguments_for(SIGNATURE, ACCESS, SPAN, ["n=1", "n=2"])


def test_a_result_is_saved_under_its_name(tmp_path: Path) -> None:
    save(tmp_path / "out.npy", "out", {"out": np.arange(3), "n": 4})
    assert np.load(tmp_path / "out.npy").tolist() == [0, 1, 2]
    with pytest.raises(UnknownName, match="No array called 'n'"):
        save(tmp_path / "n.npy", "n", {"out": np.arange(3), "n": 4})

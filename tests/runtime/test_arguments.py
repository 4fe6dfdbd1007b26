from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.program.compile import ir_of
from apportion.program.kernel.access import ArgumentAccess, KernelAccess, accesses_of
from apportion.program.kernel.bounds import IndexProgram, NDRange
from apportion.program.kernel.signature import KernelArgument, Signature, signature_of
from apportion.program.source import Source
from apportion.runtime.arguments import Arguments, arguments_for, save
from apportion.runtime.base import LocalMemory
from apportion.runtime.images import Sampler

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
        ArgumentAccess(4, "n", "value", roles=frozenset({"bound 0"})),
        ArgumentAccess(5, "factor", "value"),
    ),
    IndexProgram(()),
    False,
)
SPAN = NDRange((128,), (32,))


def test_what_is_not_given_is_made_from_the_signature_and_the_size() -> None:
    made = arguments_for(SIGNATURE, ACCESS, SPAN)
    assert list(made.values) == ["x", "where", "out", "kept", "n", "factor"]
    x, where, out, kept, n, factor = made.values.values()
    assert (x.shape, x.dtype) == ((128,), np.float32)  # type: ignore[union-attr]
    assert 0 <= where.min() <= where.max() < 128  # type: ignore[union-attr]
    assert out.tolist() == [0.0] * 512  # type: ignore[union-attr]
    assert kept == LocalMemory(4 * 4 * 32)
    assert (n, factor) == (128, 0.5)
    assert [each.name for each in made.assumed] == list(made.values)
    assert str(made.assumed[4]) == "n=128 (it bounds the work-items of dimension 0)"


def test_the_same_seed_makes_the_same_arrays() -> None:
    one, other, third = (arguments_for(SIGNATURE, ACCESS, SPAN, seed=s).values["x"] for s in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_arguments_are_read_as_the_command_line_writes_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    given = [f"x={tmp_path / 'x.npy'}", "where=int32[2*N]=range", "out=float32[8,16]=ones", "kept=local:256",
             "n=0x10", "factor=3.5"]  # fmt: skip
    made = arguments_for(SIGNATURE, ACCESS, SPAN, given)
    x, where, out, kept, n, factor = made.values.values()
    assert x.tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert where.tolist() == list(range(256))  # type: ignore[union-attr]
    assert (out.shape, out.sum()) == ((8, 16), 128)  # type: ignore[union-attr]
    assert (kept, n, factor) == (LocalMemory(256), 16, 3.5)
    assert made.assumed == ()


def test_an_archive_of_arrays_gives_each_argument_its_own(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, x=np.arange(4, dtype=np.float32), seen=np.arange(6, dtype=np.int32))
    made = arguments_for(SIGNATURE, ACCESS, SPAN, [f"x={file}", f"where={file}:seen"])
    assert made.values["x"].tolist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert made.values["where"].tolist() == [0, 1, 2, 3, 4, 5]  # type: ignore[union-attr]
    with pytest.raises(UnknownName, match=r"No array in .* called 'out'. There are: seen, x"):
        arguments_for(SIGNATURE, ACCESS, SPAN, [f"out={file}"])
    with pytest.raises(UnreadableFile, match="Cannot read the array"):
        arguments_for(SIGNATURE, ACCESS, SPAN, [f"out={file}:nothing"])
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UnreadableFile, match="Cannot read the arrays of"):
        arguments_for(SIGNATURE, ACCESS, SPAN, [f"x={file}"])


@pytest.mark.parametrize(("word", "value"), [("N", 128), ("int32:N0", 128), ("N0+L", 160), ("int32:7", 7)])
def test_integers_may_be_written_with_letters(word: str, value: int) -> None:
    assert arguments_for(SIGNATURE, ACCESS, SPAN, [f"n={word}"]).values["n"] == value


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("x", InvalidSetting, "Write an argument as name=value, for example x=float32.1024., not 'x'"),
        ("y=1", UnknownName, "No argument called 'y'"),
        ("x=float33[4]", InvalidSetting, "No type called 'float33'"),
        ("x=float32[0]", InvalidSetting, "A size must be at least 1, not 0"),
        ("x=float32[4]=noise", InvalidSetting, "No filling called 'noise'"),
        ("n=four", InvalidSetting, "n=four: not a number"),
        ("n=3000000000", InvalidSetting, "3000000000 does not fit int32"),
        ("n=float32[4]", InvalidSetting, "the argument is int"),
        ("x=7", InvalidSetting, "An argument is written float32"),
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


FORMS = """
typedef struct { double a; int n; } P;
typedef struct { P pair[2]; float4 v; char c; } Q;
typedef union { int i; float f; double d; } U;
kernel void k(global float *x, P p, global Q *q, global U *u, float3 v, constant P *table, uchar c,
              global half *h) {
  int i = get_global_id(0);
  x[i] = p.a + q[i].pair[1].n + u[i].f + v.z + table[i].n + c + vload_half(i, h);
}
"""


def made_for(
    text: str, given: Sequence[str] = (), span: NDRange = SPAN, kernel: str | None = None
) -> Arguments:
    ir = ir_of(Source(text, "opencl"))
    signature = signature_of(ir, kernel)
    return arguments_for(signature, accesses_of(ir)[signature.name], span, given)


def test_structures_unions_and_vectors_have_their_size() -> None:
    made = made_for(FORMS, ["p=1.5,3", "v=1,2,3"]).values
    assert made["p"] == struct.pack("<di4x", 1.5, 3)
    assert made["v"] == struct.pack("<4f", 1, 2, 3, 0)
    assert made["q"].dtype.itemsize == 64  # type: ignore[union-attr]
    assert 0 <= made["q"]["f0"].min() <= made["q"]["f0"].max() <= 1  # type: ignore[index, call-overload]
    assert made["u"].nbytes == 8 * 128  # type: ignore[union-attr]
    assert made["h"].dtype == np.float16  # type: ignore[union-attr]
    assert made["c"] == 1


def test_numbers_that_do_not_fit_a_structure_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"P has 2 values \(float64, int32\), not 3"):
        made_for(FORMS, ["p=1,2,3"])
    with pytest.raises(InvalidSetting, match="float3 has 3 numbers, not 2"):
        made_for(FORMS, ["v=1,2"])
    with pytest.raises(InvalidSetting, match="300 does not fit uint8"):
        made_for(FORMS, ["c=300"])


ROWS = """
kernel void rows(global float *A, global float *x, global float *y, int nx, int ny) {
  int i = get_global_id(0);
  if (i < nx) for (int j = 0; j < ny; j++) y[i] += A[i * ny + j] * x[j];
}
"""


def test_arrays_are_as_long_as_a_kernel_reaches() -> None:
    made = made_for(ROWS, span=NDRange((1024,), (64,)))
    assert (made.values["nx"], made.values["ny"]) == (1024, 1024)
    assert made.values["A"].size == 1024 * 1024  # type: ignore[union-attr]
    assert made.values["x"].size == 1024  # type: ignore[union-attr]
    assert [each.name for each in made.assumed if each.guessed] == ["ny"]


def test_loops_are_shorter_where_arrays_would_be_too_long() -> None:
    made = made_for(ROWS, span=NDRange((1 << 20,), (64,)))
    assert made.values["nx"] == 1 << 20
    assert made.case.nbytes <= 1 << 29


def test_a_given_length_decides_over_arrays() -> None:
    assert made_for(ROWS, ["ny=3"], span=NDRange((1024,), (64,))).values["A"].size == 3 * 1024  # type: ignore[union-attr]


IMAGES = """
kernel void turn(read_only image2d_t a, write_only image2d_t b, sampler_t s, read_only image3d_t c) {
  int2 p = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(b, p, convert_uint4(read_imagef(a, s, p) + read_imagef(c, s, (int4)(p, 0, 0))));
}
"""


def test_images_are_of_the_size_of_the_range() -> None:
    made = made_for(IMAGES, ["a=image2d:rgba8[32,16]=zeros"], NDRange((64, 32), (8, 8)))
    assert made.values["a"].shape == (32, 16)  # type: ignore[union-attr]
    assert (made.values["b"].shape, made.values["b"].format) == ((64, 32), "rgba32u")  # type: ignore[union-attr]
    assert made.values["c"].kind == "image3d"  # type: ignore[union-attr]
    assert made.values["s"] == Sampler("clamp_to_edge", "nearest")
    with pytest.raises(InvalidSetting, match="write it like image2d:rgba8"):
        made_for(IMAGES, ["a=float32[4]"], NDRange((64, 32), (8, 8)))
    with pytest.raises(InvalidSetting, match="there is no 'wrap'"):
        made_for(IMAGES, ["s=sampler:wrap"], NDRange((64, 32), (8, 8)))


def test_a_pipe_is_refused_by_name() -> None:
    text = "kernel void f(read_only pipe int p, global int *x) { int v; read_pipe(p, &v); *x = v; }"
    with pytest.raises(InvalidSetting, match="The argument 'p' is pipe int, which no host passes"):
        made_for(text)


def test_vectors_of_integers_are_what_they_are_used_for() -> None:
    text = """
kernel void blur(read_only image2d_t in, write_only image2d_t out, int2 corner, int2 size, uint2 plain) {
  const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
  int2 here = (int2)(get_global_id(0), get_global_id(1)) + corner;
  if (here.x < size.x && here.y < size.y)
    write_imagef(out, here, read_imagef(in, s, here) * convert_float(plain.x));
}
"""
    made = made_for(text, span=NDRange((64, 32), (8, 8)))
    assert [np.frombuffer(made.values[name], np.int32).tolist() for name in ("corner", "size", "plain")] == [
        [0, 0], [64, 32], [1, 1]
    ]  # fmt: skip
    assert {each.name: each.reason for each in made.assumed}["size"] == "the work-items of each dimension"


def test_loops_whose_ends_are_read_are_short() -> None:
    text = """
kernel void rows(global const int *count, global const int *list, global float *y) {
  int i = get_global_id(0);
  float s = 0;
  for (int k = 0; k < count[i]; k++) s += list[i + k];
  y[i] = s;
}
"""
    made = made_for(text, span=NDRange((1024,), (64,))).values
    assert made["count"].max() == 15  # type: ignore[union-attr]
    assert made["list"].max() > 100  # type: ignore[union-attr]


def test_loops_inside_each_other_run_as_often_together_as_one_alone() -> None:
    text = """
kernel void nest(global float *y, int rows, int columns) {
  float s = y[get_global_id(0)];
  for (int a = 0; a < rows; a++) for (int b = 0; b < columns; b++) s = s * 0.5f + sin(s);
  y[get_global_id(0)] = s;
}
"""
    made = made_for(text, span=NDRange((4096,), (64,))).values
    assert (made["rows"], made["columns"]) == (32, 32)


def test_windows_in_windows_are_narrow_where_one_number_is_the_width_of_each() -> None:
    text = """
kernel void means(global float *y, int half_width) {
  float s = 0;
  for (int a = -half_width; a <= half_width; a++)
    for (int b = -half_width; b <= half_width; b++)
      for (int c = -half_width; c <= half_width; c++) s = sin(s + y[get_global_id(0)] + c);
  y[get_global_id(0)] = s;
}
"""
    made = made_for(text, span=NDRange((4096,), (64,))).values
    assert made["half_width"] == 10


def test_a_loop_whose_end_another_loop_counts_makes_both_shorter() -> None:
    text = """
kernel void layers(global float *y, int rows) {
  float s = y[get_global_id(0)];
  for (int a = 0; a < rows; a++) for (int b = 0; b < a + 2; b++) s = s * 0.5f + sin(s);
  y[get_global_id(0)] = s;
}
"""
    made = made_for(text, span=NDRange((4096,), (64,))).values
    assert made["rows"] == 32


def test_a_structure_that_holds_indices_as_other_types_holds_zeros() -> None:
    text = """
typedef struct { union { float low[4]; int place[4]; }; } Box;
kernel void gather(global const Box *all, global Box *some) {
  int i = get_global_id(0), from = some[i].place[3];
  some[i] = all[from];
}
"""
    made = made_for(text, span=NDRange((64,), (64,)))
    assert not made.values["some"].view(np.uint8).any()  # type: ignore[union-attr]
    assert made.values["all"].view(np.uint8).any()  # type: ignore[union-attr]
    assert "as other types" in {each.name: each.reason for each in made.assumed}["some"]

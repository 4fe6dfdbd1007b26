"""Triton kernels, run by Triton's interpreter on the CPU and held against torch."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("triton", reason="triton is not installed")
if "TRITON_INTERPRET" not in os.environ:
    pytest.skip("needs TRITON_INTERPRET=1, set before Triton is imported", allow_module_level=True)

import torch

from reproduction.collect.triton_families import families

SMALL = {
    "M": 48, "N": 80, "K": 96, "Z": 2, "S": 80, "B": 2, "H": 6, "W": 6, "C": 48, "P": 6, "Q": 6, "T": 40,
}  # fmt: skip
TILES = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")  # the interpreter's own
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of rows that are not stored
@pytest.mark.parametrize("name", families())
def test_a_kernel_gives_what_torch_gives_where_blocks_do_not_divide_the_sizes(name: str) -> None:
    family = families()[name]
    shape = {size: SMALL[size] for size in family.shapes[0]}
    if name == "strided_convolution":
        shape |= {"P": 3, "Q": 3}
    one = {key: TILES.get(key, value) for key, value in family.default.items()}
    if "SPLIT" in one:
        one["SPLIT"] = 2
    generator = torch.Generator().manual_seed(0)
    arrays = {
        key: torch.randn(dims, generator=generator).to(getattr(torch, element))
        for key, (dims, element) in family.operands(shape).items()
    }
    # The interpreter multiplies the bits of bfloat16 as if they were integers.
    arrays = {key: array.half() if array.dtype == torch.bfloat16 else array for key, array in arrays.items()}
    wanted = family.reference(arrays).float()
    result, (dims, element) = family.result(shape)
    if not family.accumulates:
        arrays[result] = torch.full(dims, float("nan"), dtype=getattr(torch, element))
    values = {**family.fixed, **one, **shape, **arrays}
    kernel = family.kernel
    kernel[family.grid(shape, one)](**{key: values.get(key, arrays[result]) for key in kernel.arg_names})
    error = (arrays[result].float() - wanted).norm() / wanted.norm()
    assert error < family.tolerance

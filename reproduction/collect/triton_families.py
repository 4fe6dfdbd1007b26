"""Families of Triton kernels: shapes, spaces, heuristic defaults, and what the result must be.

Every size that a kernel is given is a multiple of 16 in all shapes of its family, or in none: the compiler is
told, and so one binary serves all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from apportion.measure.space import Configuration, Space
from reproduction.collect import triton_kernels as kernels

Shape = Mapping[str, int]
Operand = tuple[tuple[int, ...], str]
"Dimensions and element type of an array."

SHARED_BYTES = 232_448
"What a program may have of a Hopper multiprocessor's shared memory."


@dataclass(frozen=True)
class Family:
    """One kernel with the shapes and configurations that it is measured with."""

    name: str
    kernel: Any
    shapes: tuple[Shape, ...]
    space: Space
    default: Configuration
    "What someone writes who does not tune."
    operands: Callable[[Shape], dict[str, Operand]]
    "The arrays in the order of the JAX function's arguments, by the names that the kernel has for them."
    result: Callable[[Shape], tuple[str, Operand]]
    reference: Callable[[Mapping[str, Tensor]], Tensor]
    grid: Callable[[Shape, Configuration], tuple[int, int, int]]
    output: tuple[str, ...]
    "Which parameters are the tile of the result."
    reduced: tuple[str, ...] = ()
    "Which are the tile of the dimension that is reduced."
    fixed: Mapping[str, Any] = field(default_factory=dict)
    accumulates: bool = False
    "Whether the result is added to what the array held."
    tolerance: float = 1e-2

    def configurations(self, count: int, seed: int = 0) -> list[Configuration]:
        """The default and others at random, the same for every shape."""
        return self.space.sample(count, seed=seed, first=self.default)

    def graph_name(self, shape: Shape) -> str:
        """FAMILY.M1024-N512 …"""
        return f"{self.name}.{'-'.join(f'{name}{size}' for name, size in shape.items())}"

    def divisible(self, size: str) -> bool:
        """Whether a size is a multiple of 16 in all shapes."""
        return all(shape[size] % 16 == 0 for shape in self.shapes)


def sizes(names: str, *rows: tuple[int, ...]) -> tuple[Shape, ...]:
    """Shapes from rows of numbers."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


# Products


def _product_space(bytes_each: int, *, factors: int = 2, split: Sequence[int] = ()) -> Space:
    def allowed(one: Configuration) -> bool:
        m, n, k = one["BLOCK_M"], one["BLOCK_N"], one["BLOCK_K"]
        tiles = (m * k + (factors - 1) * k * n) * bytes_each * one["num_stages"]
        held = (factors - 1) * m * n // (32 * one["num_warps"])  # sums that a thread keeps in registers
        return bool(tiles <= SHARED_BYTES and 8 <= held <= 256)

    values: dict[str, Sequence[int]] = {
        "BLOCK_M": (32, 64, 128, 256), "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128) if bytes_each == 2 else (16, 32, 64), "GROUP": (1, 4, 8),
        "num_warps": (2, 4, 8), "num_stages": (2, 3, 4, 5),
    }  # fmt: skip
    return Space(values | ({"SPLIT": split} if split else {}), allowed)


def _default_product(k: int = 64, **more: int) -> Configuration:
    chosen = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": k, "GROUP": 8, "num_warps": 4, "num_stages": 3}
    return chosen | more


def _product(
    name: str,
    shapes: tuple[Shape, ...],
    *,
    element: str = "float16",
    transposed: str = "",
    epilogue: int = 0,
    split: Sequence[int] = (),
    batched: bool = False,
) -> Family:
    def operands(s: Shape) -> dict[str, Operand]:
        batch = (s["Z"],) if batched else ()
        a = (s["K"], s["M"]) if "a" in transposed else (s["M"], s["K"])
        b = (s["N"], s["K"]) if "b" in transposed else (s["K"], s["N"])
        found: dict[str, Operand] = {"a": ((*batch, *a), element), "b": ((*batch, *b), element)}
        if epilogue in (1, 2):
            found["bias"] = ((s["N"],), "float32")
        if epilogue == 2:
            found["residual"] = ((s["M"], s["N"]), element)
        if epilogue == 3:
            found["c"] = ((s["M"], s["N"]), "float32")
        return found

    def result(s: Shape) -> tuple[str, Operand]:
        batch = (s["Z"],) if batched else ()
        return "c", ((*batch, s["M"], s["N"]), "float32" if epilogue == 3 else element)

    def reference(t: Mapping[str, Tensor]) -> Tensor:
        a = t["a"].float().mT if "a" in transposed else t["a"].float()
        b = t["b"].float().mT if "b" in transposed else t["b"].float()
        c = a @ b
        if epilogue == 1:
            return torch.nn.functional.gelu(c + t["bias"])
        if epilogue == 2:
            return torch.relu(c + t["bias"]) + t["residual"].float()
        return c + t["c"] if epilogue == 3 else c

    def grid(s: Shape, one: Configuration) -> tuple[int, int, int]:
        tiles = _blocks(s["M"], one["BLOCK_M"]) * _blocks(s["N"], one["BLOCK_N"])
        return tiles, one.get("SPLIT", 1), s.get("Z", 1)

    fixed = {
        "A_TRANSPOSED": "a" in transposed, "B_TRANSPOSED": "b" in transposed, "BATCHED": batched,
        "EPILOGUE": epilogue,
    } | ({} if split else {"SPLIT": 1})  # fmt: skip
    bytes_each = 4 if element == "float32" else 2
    default = _default_product(*((32,) if bytes_each == 4 else ()), **({"SPLIT": 1} if split else {}))
    return Family(
        name, kernels.product, shapes, _product_space(bytes_each, split=split), default, operands, result,
        reference, grid, ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",), fixed, accumulates=epilogue == 3,
    )  # fmt: skip


def _gated_product(shapes: tuple[Shape, ...]) -> Family:
    def operands(s: Shape) -> dict[str, Operand]:
        b: Operand = ((s["K"], s["N"]), "bfloat16")
        return {"a": ((s["M"], s["K"]), "bfloat16"), "b": b, "gate": b}

    return Family(
        "gated_product", kernels.gated_product, shapes, _product_space(2, factors=3),
        _default_product(BLOCK_N=64), operands,
        lambda s: ("c", ((s["M"], s["N"]), "bfloat16")),
        lambda t: (
            torch.nn.functional.silu(t["a"].float() @ t["gate"].float()) * (t["a"].float() @ t["b"].float())
        ),
        lambda s, one: (_blocks(s["M"], one["BLOCK_M"]) * _blocks(s["N"], one["BLOCK_N"]), 1, 1),
        ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",),
    )  # fmt: skip


def _convolution(name: str, stride: int, shapes: tuple[Shape, ...]) -> Family:
    def operands(s: Shape) -> dict[str, Operand]:
        return {
            "x": ((s["B"], s["H"], s["W"], s["C"]), "float16"), "w": ((3, 3, s["C"], s["N"]), "float16"),
        }  # fmt: skip

    def reference(t: Mapping[str, Tensor]) -> Tensor:
        x, w = t["x"].float().permute(0, 3, 1, 2), t["w"].float().permute(3, 2, 0, 1)
        return torch.nn.functional.conv2d(x, w, stride=stride, padding=1).permute(0, 2, 3, 1)

    def grid(s: Shape, one: Configuration) -> tuple[int, int, int]:
        rows = s["B"] * s["P"] * s["Q"]
        return _blocks(rows, one["BLOCK_M"]) * _blocks(s["N"], one["BLOCK_N"]), 1, 1

    return Family(
        name, kernels.convolution, shapes, _product_space(2), _default_product(), operands,
        lambda s: ("y", ((s["B"], s["P"], s["Q"], s["N"]), "float16")), reference, grid,
        ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",), {"STRIDE": stride},
    )  # fmt: skip


def _attention(name: str, width: int, causal: bool, shapes: tuple[Shape, ...]) -> Family:
    def allowed(one: Configuration) -> bool:
        m, n = one["BLOCK_M"], one["BLOCK_N"]
        tiles = (2 * n * one["num_stages"] + m) * width * 2
        held = m * max(n, width) // (32 * one["num_warps"])
        return bool(tiles <= SHARED_BYTES and 8 <= held <= 256)

    def operands(s: Shape) -> dict[str, Operand]:
        one: Operand = ((s["Z"], s["S"], width), "float16")
        return {"q": one, "k": one, "v": one}

    def reference(t: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (t[part][None] for part in "qkv")
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)[0].float()

    values = {
        "BLOCK_M": (16, 32, 64, 128, 256), "BLOCK_N": (16, 32, 64, 128), "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4),
    }  # fmt: skip
    default = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4 if width == 64 else 8, "num_stages": 3}
    return Family(
        name, kernels.attention, shapes, Space(values, allowed), default, operands,
        lambda s: ("out", ((s["Z"], s["S"], width), "float16")), reference,
        lambda s, one: (_blocks(s["S"], one["BLOCK_M"]), s["Z"], 1),
        ("BLOCK_M", "WIDTH"), ("BLOCK_N",), {"WIDTH": width, "CAUSAL": causal},
    )  # fmt: skip


# Rows and maps

_WARPS = (1, 2, 4, 8, 16)


def _rows_space(least: int = 256, most: int = 16_384, **more: Sequence[int]) -> Space:
    """Tiles of 1 to 64 rows; `least` to `most` elements in each."""

    def allowed(one: Configuration) -> bool:
        area = one["BLOCK_M"] * one["BLOCK_N"]
        return bool(least <= area <= most and 1 <= area / (32 * one["num_warps"]) <= 128)

    values: dict[str, Sequence[int]] = {
        "BLOCK_M": (1, 2, 4, 8, 16, 32, 64), "BLOCK_N": (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "num_warps": _WARPS, "num_stages": (1, 2, 3),
    }  # fmt: skip
    return Space(values | more, allowed)


def _rows(
    name: str,
    kernel: Any,
    operands: Callable[[Shape], dict[str, Operand]],
    reference: Callable[[Mapping[str, Tensor]], Tensor],
    *,
    reduces: bool = False,
    element: str = "float32",
    shapes: tuple[Shape, ...],
) -> Family:
    """A kernel each of whose programs walks over some rows."""
    return Family(
        name, kernel, shapes, _rows_space(),
        {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4, "num_stages": 2}, operands,
        lambda s: ("y", ((s["M"],) if reduces else (s["M"], s["N"]), element)), reference,
        lambda s, one: (_blocks(s["M"], one["BLOCK_M"]), 1, 1),
        ("BLOCK_M",), ("BLOCK_N",),
    )  # fmt: skip


def _matrix(element: str, *names: str) -> Callable[[Shape], dict[str, Operand]]:
    return lambda s: dict.fromkeys(names, ((s["M"], s["N"]), element))


def _layer_norm_operands(s: Shape) -> dict[str, Operand]:
    row: Operand = ((s["N"],), "float32")
    return {"x": ((s["M"], s["N"]), "float16"), "weight": row, "bias": row}


def _rms_norm_operands(s: Shape) -> dict[str, Operand]:
    matrix: Operand = ((s["M"], s["N"]), "bfloat16")
    return {"x": matrix, "residual": matrix, "weight": ((s["N"],), "float32")}


def _rms_norm(t: Mapping[str, Tensor]) -> Tensor:
    x = t["x"].float() + t["residual"].float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * t["weight"]


def _bias_gelu_operands(s: Shape) -> dict[str, Operand]:
    matrix: Operand = ((s["M"], s["N"]), "float16")
    return {"x": matrix, "bias": ((s["N"],), "float32"), "residual": matrix}


def _column_sum_space() -> Space:
    return _rows_space(SPLIT=(1, 8, 32, 128))


def _tiles_grid(s: Shape, one: Configuration) -> tuple[int, int, int]:
    return _blocks(s["M"], one["BLOCK_M"]), _blocks(s["N"], one["BLOCK_N"]), 1


def _depthwise(t: Mapping[str, Tensor]) -> Tensor:
    x, w = t["x"].float(), t["w"].float()
    padded = torch.nn.functional.pad(x, (0, 0, 3, 0))
    total = sum(padded[:, tap : tap + x.shape[1]] * w[tap] for tap in range(4))
    assert isinstance(total, Tensor)
    return torch.nn.functional.silu(total)


def families() -> dict[str, Family]:
    """All of them, by name."""
    mnk, mn = "M N K", "M N"
    found = (
        _product("product", sizes(
            mnk, (1024, 1024, 1024), (4096, 4096, 1024), (2048, 2048, 4096), (8192, 1024, 512),
            (256, 8192, 4096), (4096, 4096, 4096),
        )),
        _product("product_nt", sizes(
            mnk, (1024, 2048, 1024), (4096, 4096, 512), (1536, 1536, 6144), (8192, 2048, 2048),
            (128, 12288, 4096), (3072, 768, 3072),
        ), transposed="b"),
        _product("product_tn", sizes(
            mnk, (1024, 1024, 4096), (2048, 4096, 1024), (768, 3072, 8192), (4096, 1024, 2048),
            (512, 512, 16384), (3072, 3072, 2048),
        ), transposed="a"),
        _product("product_gelu", sizes(
            mnk, (2048, 3072, 768), (4096, 4096, 1024), (8192, 4096, 2048), (512, 8192, 2048),
            (16384, 1024, 256), (1024, 5120, 1280),
        ), epilogue=1),
        _product("product_residual", sizes(
            mnk, (2048, 768, 3072), (4096, 1024, 4096), (8192, 2048, 4096), (512, 2048, 8192),
            (16384, 256, 1024), (1024, 1280, 5120),
        ), element="bfloat16", epilogue=2),
        _product("product_tf32", sizes(
            mnk, (1024, 1024, 1024), (2048, 2048, 1024), (4096, 1024, 512), (512, 4096, 2048),
            (3072, 3072, 768),
        ), element="float32"),
        _product("product_accumulate", sizes(
            mnk, (256, 256, 16384), (512, 1024, 8192), (1024, 1024, 4096), (128, 4096, 8192),
            (64, 2048, 16384), (2048, 2048, 2048),
        ), epilogue=3, split=(1, 2, 4, 8, 16)),
        _product("batched_product", sizes(
            "Z M N K", (64, 512, 512, 64), (96, 384, 384, 128), (32, 1024, 128, 1024), (16, 1024, 1024, 512),
            (128, 256, 256, 256), (256, 128, 256, 64),
        ), batched=True),
        _gated_product(sizes(
            mnk, (2048, 2048, 1024), (4096, 2816, 1024), (1024, 8192, 2048), (512, 11008, 4096),
            (8192, 1536, 768),
        )),
        _convolution("convolution", 1, sizes(
            "B H W C P Q N", (32, 56, 56, 64, 56, 56, 64), (32, 28, 28, 128, 28, 28, 128),
            (32, 14, 14, 256, 14, 14, 256), (64, 7, 7, 512, 7, 7, 512), (8, 112, 112, 32, 112, 112, 64),
            (16, 32, 32, 320, 32, 32, 320),
        )),
        _convolution("strided_convolution", 2, sizes(
            "B H W C P Q N", (32, 56, 56, 64, 28, 28, 128), (32, 28, 28, 128, 14, 14, 256),
            (64, 14, 14, 256, 7, 7, 512), (8, 112, 112, 64, 56, 56, 64), (16, 64, 64, 320, 32, 32, 320),
        )),
        _attention("attention", 64, False, sizes(
            "Z S", (96, 512), (64, 1024), (32, 2048), (16, 4096), (128, 256), (12, 8192),
        )),
        _attention("causal_attention", 128, True, sizes(
            "Z S", (128, 512), (64, 1024), (32, 2048), (16, 4096), (8, 8192),
        )),
        _rows("softmax", kernels.softmax, _matrix("float16", "x"),
              lambda t: torch.softmax(t["x"].float(), -1), element="float16", shapes=sizes(
            mn, (16384, 1024), (8192, 4096), (2048, 16384), (65536, 512), (512, 65536), (32768, 768),
        )),
        _rows("log_sum_exp", kernels.log_sum_exp, _matrix("float32", "x"),
              lambda t: torch.logsumexp(t["x"], -1), reduces=True, shapes=sizes(
            mn, (16384, 1024), (4096, 8192), (2048, 32000), (65536, 512), (1024, 50304),
        )),
        _rows("layer_norm", kernels.layer_norm, _layer_norm_operands,
              lambda t: torch.nn.functional.layer_norm(
                  t["x"].float(), t["x"].shape[-1:], t["weight"], t["bias"]),
              element="float16", shapes=sizes(
            mn, (16384, 1024), (8192, 4096), (32768, 768), (4096, 12288), (65536, 256), (8192, 2560),
        )),
        _rows("rms_norm", kernels.rms_norm, _rms_norm_operands, _rms_norm, element="bfloat16", shapes=sizes(
            mn, (16384, 1024), (8192, 4096), (32768, 640), (4096, 8192), (65536, 384),
        )),
        _rows("row_sum", kernels.row_sum, _matrix("float32", "x"), lambda t: t["x"].sum(-1), reduces=True,
              shapes=sizes(
            mn, (16384, 2048), (4096, 8192), (65536, 512), (1024, 65536), (131072, 128),
        )),
        _rows("cumulative_sum", kernels.cumulative_sum, _matrix("float32", "x"),
              lambda t: t["x"].cumsum(-1), shapes=sizes(
            mn, (8192, 2048), (4096, 4096), (65536, 256), (1024, 16384), (16384, 1024),
        )),
        _rows("matrix_vector", kernels.matrix_vector,
              lambda s: {"a": ((s["M"], s["N"]), "float16"), "x": ((s["N"],), "float16")},
              lambda t: t["a"].float() @ t["x"].float(), reduces=True, element="float16", shapes=sizes(
            mn, (16384, 4096), (8192, 8192), (4096, 16384), (65536, 1024), (32000, 4096),
        )),
        Family(
            "column_sum", kernels.column_sum,
            sizes(mn, (16384, 2048), (65536, 512), (4096, 8192), (32768, 768), (131072, 256)),
            _column_sum_space(),
            {"BLOCK_M": 32, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2, "SPLIT": 8},
            lambda s: {"x": ((s["M"], s["N"]), "float32"), "y": ((s["N"],), "float32")},
            lambda s: ("y", ((s["N"],), "float32")), lambda t: t["y"] + t["x"].sum(0),
            lambda s, one: (_blocks(s["N"], one["BLOCK_N"]), one["SPLIT"], 1),
            ("BLOCK_N",), ("BLOCK_M",), accumulates=True,
        ),
        Family(
            "bias_gelu", kernels.bias_gelu,
            sizes(mn, (8192, 4096), (16384, 3072), (2048, 12288), (65536, 1024), (32768, 768)),
            Space({
                "BLOCK_N": (128, 256, 512, 1024, 2048, 4096, 8192, 16384), "SPLIT": (1, 2, 4, 8, 16),
                "num_warps": _WARPS, "num_stages": (1, 2, 3),
            }, lambda one: 1 <= one["BLOCK_N"] / (32 * one["num_warps"]) <= 128),
            {"BLOCK_N": 1024, "SPLIT": 1, "num_warps": 4, "num_stages": 2}, _bias_gelu_operands,
            lambda s: ("y", ((s["M"], s["N"]), "float16")),
            lambda t: torch.nn.functional.gelu(t["x"].float() + t["bias"]) + t["residual"].float(),
            lambda s, one: (_blocks(s["M"] * s["N"], one["BLOCK_N"] * one["SPLIT"]), 1, 1),
            ("BLOCK_M", "BLOCK_N"),
        ),
        Family(
            "gated_linear", kernels.gated_linear,
            sizes(mn, (8192, 4096), (16384, 2816), (2048, 11008), (65536, 1024), (32768, 768)),
            _rows_space(), {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4, "num_stages": 2},
            _matrix("bfloat16", "x", "gate"), lambda s: ("y", ((s["M"], s["N"]), "bfloat16")),
            lambda t: torch.nn.functional.silu(t["gate"].float()) * t["x"].float(), _tiles_grid,
            ("BLOCK_M", "BLOCK_N"),
        ),
        Family(
            "transpose", kernels.transpose,
            sizes(mn, (8192, 4096), (4096, 8192), (16384, 2048), (65536, 512), (2048, 12288)),
            Space({
                "BLOCK_M": (8, 16, 32, 64, 128, 256), "BLOCK_N": (8, 16, 32, 64, 128, 256),
                "GROUP": (1, 8), "num_warps": (1, 2, 4, 8), "num_stages": (2,),
            }, lambda one: 1 <= one["BLOCK_M"] * one["BLOCK_N"] / (32 * one["num_warps"]) <= 128),
            {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 1, "num_warps": 4, "num_stages": 2},
            _matrix("float16", "x"), lambda s: ("y", ((s["N"], s["M"]), "float16")),
            lambda t: t["x"].float().T,
            lambda s, one: (_blocks(s["M"], one["BLOCK_M"]) * _blocks(s["N"], one["BLOCK_N"]), 1, 1),
            ("BLOCK_M", "BLOCK_N"),
        ),
        Family(
            "depthwise_convolution", kernels.depthwise_convolution,
            sizes("B T C", (8, 2048, 2048), (16, 4096, 512), (2, 8192, 2560), (64, 512, 1024),
                  (32, 1024, 768)),
            _rows_space(), {"BLOCK_M": 8, "BLOCK_N": 128, "num_warps": 4, "num_stages": 2},
            lambda s: {"x": ((s["B"], s["T"], s["C"]), "float16"), "w": ((4, s["C"]), "float16")},
            lambda s: ("y", ((s["B"], s["T"], s["C"]), "float16")), _depthwise,
            lambda s, one: (_blocks(s["T"], one["BLOCK_M"]), _blocks(s["C"], one["BLOCK_N"]), s["B"]),
            ("BLOCK_M", "BLOCK_N"),
        ),
    )  # fmt: skip
    return {family.name: family for family in found}


def work(family: Family, shape: Shape) -> int:
    """The bytes of all arrays of a graph."""
    every = [*family.operands(shape).values(), family.result(shape)[1]]
    return sum(math.prod(dims) * (4 if kind == "float32" else 2) for dims, kind in every)

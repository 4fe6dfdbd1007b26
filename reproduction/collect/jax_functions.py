"""The kernels of the collections as JAX functions: what their graphs are made from."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from apportion.program.hlo.jax import jax

Function = Callable[..., Any]


def functions() -> dict[str, Function]:
    """Family of kernels → the function; its arguments are the family's operands, in their order.

    Raises:
        MissingPackage: JAX is not installed.
    """
    package = jax()
    np, nn, lax = package.numpy, package.nn, package.lax

    def dot(a: Any, b: Any) -> Any:
        return lax.dot(a, b, preferred_element_type="float32")

    def gelu(x: Any) -> Any:
        return nn.gelu(x, approximate=False)

    def convolution(x: Any, w: Any, *, stride: int) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=numbers)

    def attention(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
        score = np.einsum("zsd,ztd->zst", q, k, preferred_element_type="float32") / q.shape[-1] ** 0.5
        if causal:
            size = q.shape[1]
            rows = lax.broadcasted_iota("int32", (size, size), 0)
            score = np.where(rows >= lax.broadcasted_iota("int32", (size, size), 1), score, -np.inf)
        return np.einsum("zst,ztd->zsd", nn.softmax(score).astype(v.dtype), v)

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        wide = x.astype("float32")
        mean = wide.mean(-1, keepdims=True)
        spread = ((wide - mean) ** 2).mean(-1, keepdims=True)
        return ((wide - mean) * lax.rsqrt(spread + 1e-5) * weight + bias).astype(x.dtype)

    def rms_norm(x: Any, residual: Any, weight: Any) -> Any:
        wide = x.astype("float32") + residual.astype("float32")
        return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * weight).astype(x.dtype)

    def depthwise(x: Any, w: Any) -> Any:
        total = lax.conv_general_dilated(
            x, w[:, None], (1,), ((3, 0),), dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=x.shape[-1],
        )  # fmt: skip
        return nn.silu(total)

    found: dict[str, Function] = {
        "product": lambda a, b: dot(a, b).astype(a.dtype),
        "product_nt": lambda a, b: dot(a, b.T).astype(a.dtype),
        "product_tn": lambda a, b: dot(a.T, b).astype(a.dtype),
        "product_gelu": lambda a, b, bias: gelu(dot(a, b) + bias).astype(a.dtype),
        "product_residual": lambda a, b, bias, residual: (
            np.maximum(dot(a, b) + bias, 0) + residual.astype("float32")
        ).astype(a.dtype),
        "product_tf32": dot,
        "product_accumulate": lambda a, b, c: c + dot(a, b),
        "batched_product": lambda a, b: np.matmul(a, b, preferred_element_type="float32").astype(a.dtype),
        "gated_product": lambda a, b, gate: (nn.silu(dot(a, gate)) * dot(a, b)).astype(a.dtype),
        "convolution": partial(convolution, stride=1),
        "strided_convolution": partial(convolution, stride=2),
        "attention": partial(attention, causal=False),
        "causal_attention": partial(attention, causal=True),
        "softmax": lambda x: nn.softmax(x.astype("float32")).astype(x.dtype),
        "log_sum_exp": lambda x: nn.logsumexp(x, -1),
        "layer_norm": layer_norm,
        "rms_norm": rms_norm,
        "row_sum": lambda x: x.sum(-1),
        "cumulative_sum": lambda x: np.cumsum(x, -1),
        "matrix_vector": lambda a, x: dot(a, x).astype(a.dtype),
        "column_sum": lambda x, y: y + x.sum(0),
        "bias_gelu": lambda x, bias, residual: (
            gelu(x.astype("float32") + bias) + residual.astype("float32")
        ).astype(x.dtype),
        "gated_linear": lambda x, gate: (
            nn.silu(gate.astype("float32")) * x.astype("float32")
        ).astype(x.dtype),
        "transpose": lambda x: x.T,
        "depthwise_convolution": depthwise,
    }  # fmt: skip
    # The same functions, measured as XLA compiles them.
    for name in ("product", "product_nt", "product_gelu", "batched_product"):
        found[f"xla_{name}"] = found[name]
    found |= {
        "blocked_product": dot,
        "blocked_product_relu": lambda a, b, bias: np.maximum(dot(a, b) + bias, 0),
        "blocked_transpose": found["transpose"],
        "blocked_column_sum": lambda x: x.sum(0),
    }
    return found

"""Measured collections of our own: kernels, their configurations, and every repeat of every runtime."""

from apportion.registry import Registry

collectors = Registry(
    "collector",
    {
        "triton": "reproduction.collect.triton_collect:collect",
        "triton-compile": "reproduction.collect.triton_collect:compile_all",
        "blocked": "reproduction.collect.blocked:collect",
        "layout": "reproduction.collect.layouts:collect",
        "xla-gemm": "reproduction.collect.xla_gemm:collect",
    },
    extras={
        "triton": "triton",
        "triton-compile": "triton",
        "blocked": "compile",
        "layout": "jax",
        "xla-gemm": "jax",
    },
)
"What measures graphs: `(folder, CollectOptions) -> Iterator[GraphRuns]`."

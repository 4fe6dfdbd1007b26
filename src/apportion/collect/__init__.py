"""Measured collections of our own: kernels, their configurations, and every repeat of every runtime."""

from apportion.registry import Registry

collectors = Registry(
    "collector",
    {
        "triton": "apportion.collect.tritoncollect:collect",
        "triton-compile": "apportion.collect.tritoncollect:compile_all",
        "blocked": "apportion.collect.blocked:collect",
        "layout": "apportion.collect.layouts:collect",
        "xla-gemm": "apportion.collect.xlagemm:collect",
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

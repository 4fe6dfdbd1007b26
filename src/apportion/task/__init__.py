"""What is asked: each task a frozen value, found by name."""

from apportion.registry import Registry

_DATAFLOW = "apportion.task.dataflow"

tasks = Registry(
    "task",
    {
        "reachability": f"{_DATAFLOW}:reachability",
        "dominance": f"{_DATAFLOW}:dominance",
        "datadep": f"{_DATAFLOW}:datadep",
        "liveness": f"{_DATAFLOW}:liveness",
        "subexpressions": f"{_DATAFLOW}:subexpressions",
    },
)

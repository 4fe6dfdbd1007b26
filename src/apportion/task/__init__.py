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
        "device-mapping": "apportion.task.device_mapping:device_mapping",
        "load-balance": "apportion.task.load_balance:load_balance",
        "config_ranking": "apportion.task.config_ranking:config_ranking",
    },
)

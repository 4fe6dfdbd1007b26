"""What learns; the only home of torch."""

from apportion.registry import Registry

models = Registry(
    "model",
    {
        "programl": "apportion.model.programl:Programl",
        "constant": "apportion.model.constant:ConstantNodes",
    },
    extras={"programl": "torch"},
)

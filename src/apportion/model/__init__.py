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

_TREES = ("extra-trees", "random-forest", "boosting", "decision-tree", "linear")
row_models = Registry(
    "learner",
    {name: f"apportion.model.trees:{name.replace('-', '_')}" for name in _TREES},
    extras=dict.fromkeys(_TREES, "trees"),
)
"What learns from rows of features: `(settings, rows, truth, seed) -> RowModel`."

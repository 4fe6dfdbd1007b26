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

_TREES = ("extra-trees", "random-forest", "boosting", "decision-tree", "linear", "pooled")
row_models = Registry(
    "learner",
    {name: f"apportion.model.trees:{name.replace('-', '_')}" for name in _TREES},
    extras=dict.fromkeys(_TREES, "trees"),
)
"What learns from rows of features: `(settings, rows, truth, seed) -> RowModel`."

engines = Registry(
    "engine",
    {
        "numpy": "apportion.model.kernelmodel:by_numpy",
        "onnx": "apportion.model.onnxengine:by_onnx",
    },
    extras={"onnx": "onnx"},
)
"What evaluates a kernel model: `(model, confidence) -> Answers`, all to the same answers."

exports = Registry("form", {"onnx": "apportion.model.onnxgraph:onnx_of"}, extras={"onnx": "onnx"})
"A kernel model as a file for other programs: `(model, confidence, task) -> bytes`."

rankers = Registry(
    "ranker",
    {
        "network": "apportion.model.rankinglearner:NetworkRanker",
        "trees": "apportion.model.boosting:TreeRanker",
        "xgboost": "apportion.model.boosting:PairwiseRanker",
        "average": "apportion.model.rankingaverage:AverageRanker",
        "ridge": "apportion.model.ridge:RidgeRanker",
        "random": "apportion.model.ranking:Chance",
        "constant": "apportion.model.ranking:Constant",
    },
    extras={"network": "torch", "trees": "trees", "xgboost": "xgboost"},
)
"What scores the configurations of a graph: see `ranking.Ranker`."

_VECTORS = ("constant", "ridge", "extra-trees", "random-forest", "boosting")
vector_models = Registry(
    "learner of vectors",
    {
        **{name: f"apportion.model.vectors:{name.replace('-', '_')}" for name in _VECTORS},
        "bagged-boosting": "apportion.model.bagging:bagged_boosting",
        "network": "apportion.model.vae:network",
    },
    extras={
        "network": "torch",
        **dict.fromkeys(("extra-trees", "random-forest", "boosting", "bagged-boosting"), "trees"),
    },
)
"What learns a number for each system from rows of features: see `vectors`."

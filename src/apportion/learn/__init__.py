"""Learning: tasks, features, models and their training, a package for each question."""

from apportion.registry import Registry

predictors = Registry(
    "predictor",
    {
        "share-forest": "apportion.learn.shares.share_forest:ShareForest",
        "pooled-forests": "apportion.learn.shares.kernel_model:KernelModel",
        "share-network": "apportion.learn.shares.share_network:ShareNetwork",
        "launch-times": "apportion.learn.times.timing_model:TimingModel",
        "relative-ridge": "apportion.learn.relative.relative_model:RelativeModel",
        "relative-fitted": "apportion.learn.relative.relative_fitted:RelativeFitted",
        "ranker": "apportion.learn.ranking.rank_predictor:RankPredictor",
        "data-flow": "apportion.learn.dataflow.analysis_predictor:AnalysisPredictor",
    },
)
"What answers with a trained model: a `base.Predictor`; artifacts name theirs."

learners = Registry(
    "learner",
    {
        "data-flow": "apportion.learn.dataflow.analysis_learner:AnalysisLearner",
        "ranking": "apportion.learn.ranking.rank_learner:RankLearner",
        "share-forest": "apportion.learn.shares.share_forest_learner:ShareForestLearner",
        "pooled-forests": "apportion.learn.shares.forest_learner:PooledForestLearner",
        "share-network": "apportion.learn.shares.share_network_learner:ShareNetworkLearner",
        "launch-times": "apportion.learn.times.times_learner:TimesLearner",
        "relative": "apportion.learn.relative.relative_learner:RelativeLearner",
    },
    extras={
        "share-forest": "trees",
        "pooled-forests": "trees",
        "share-network": "torch",
        "launch-times": "trees",
    },
)
"What makes an artifact of a dataset: a `learner.Learner`; `apportion train` finds it here."

models = Registry(
    "model",
    {
        "programl": "apportion.learn.dataflow.programl:Programl",
        "constant": "apportion.learn.dataflow.constant:ConstantNodes",
    },
    extras={"programl": "torch"},
)

_TREES = ("extra-trees", "random-forest", "boosting", "decision-tree", "linear", "pooled")
row_models = Registry(
    "learner of rows",
    {name: f"apportion.learn.shares.trees:{name.replace('-', '_')}" for name in _TREES},
    extras=dict.fromkeys(_TREES, "trees"),
)
"What learns from rows of features: `(settings, rows, truth, seed) -> RowModel`."

engines = Registry(
    "engine",
    {
        "numpy": "apportion.learn.shares.kernel_model:by_numpy",
        "onnx": "apportion.learn.shares.onnx_engine:by_onnx",
    },
    extras={"onnx": "onnx"},
)
"What evaluates a kernel model: `(model, confidence) -> Answers`, all to the same answers."

exports = Registry("form", {"onnx": "apportion.learn.shares.onnx_forms:onnx_of"}, extras={"onnx": "onnx"})
"A kernel model as a file for other programs: `(model, confidence, task) -> bytes`."

rankers = Registry(
    "ranker",
    {
        "network": "apportion.learn.ranking.ranking_learner:NetworkRanker",
        "trees": "apportion.learn.ranking.boosting:TreeRanker",
        "xgboost": "apportion.learn.ranking.boosting:PairwiseRanker",
        "average": "apportion.learn.ranking.average:AverageRanker",
        "ridge": "apportion.learn.ranking.ridge:RidgeRanker",
        "random": "apportion.learn.ranking.ranker:Chance",
        "constant": "apportion.learn.ranking.ranker:Constant",
    },
    extras={"network": "torch", "trees": "trees", "xgboost": "xgboost"},
)
"What scores the configurations of a graph: see `ranking.Ranker`."

_VECTORS = ("constant", "ridge", "extra-trees", "random-forest", "boosting")
vector_models = Registry(
    "learner of vectors",
    {
        **{name: f"apportion.learn.relative.vectors:{name.replace('-', '_')}" for name in _VECTORS},
        "bagged-boosting": "apportion.learn.relative.bagging:bagged_boosting",
        "network": "apportion.learn.relative.vae:network",
    },
    extras={
        "network": "torch",
        **dict.fromkeys(("extra-trees", "random-forest", "boosting", "bagged-boosting"), "trees"),
    },
)
"What learns a number for each system from rows of features: see `vectors`."


_DATAFLOW = "apportion.learn.dataflow.tasks"

tasks = Registry(
    "task",
    {
        "reachability": f"{_DATAFLOW}:reachability",
        "dominance": f"{_DATAFLOW}:dominance",
        "datadep": f"{_DATAFLOW}:datadep",
        "liveness": f"{_DATAFLOW}:liveness",
        "subexpressions": f"{_DATAFLOW}:subexpressions",
        "device-mapping": "apportion.learn.shares.device_mapping:device_mapping",
        "load-balance": "apportion.learn.shares.load_balance:load_balance",
        "config_ranking": "apportion.learn.ranking.ranking_task:config_ranking",
    },
)
"The questions of data-flow and share models: each task a frozen value, found by name."

"""A `KernelModel` as one ONNX graph: from features and inputs of launches to shares and intervals.

Everything that determines an answer is in it: what the nearest known launches did, the trees (one
`TreeEnsembleRegressor`, each tree an output of its own, as the answer is their middle), the votes, the
conformal interval, familiarity. As in NumPy, trees compare in 32 bits and all else is computed in 64, so that
both give the same answers. `SIGNATURE` names what goes in and what comes out.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.forest import Forest
from apportion.learn.onnx_values import DOUBLE, FLOAT, INTEGER, OnnxGraph, OnnxValue, input_or_output
from apportion.learn.shares.kernel_model import FLOOR, ROUNDED, STRANGE, Familiarity, KernelModel
from apportion.learn.shares.nearest_launches import NOTHING, SIZE_COUNTS, Memory
from apportion.learn.shares.pooled import MEMBERS, SIZE, TRIM

SIGNATURE = {
    "code": "in, 64-bit (N, F): features of the kernels, whose names the metadata have as `code`",
    "inputs": "in, 64-bit (N, I): sizes of the launches, whose names the metadata have as `inputs`: log(1 + "
    "number) in 64 bits, differences of these, and for zeros, how often the number can be halved",
    "cpu_share": "out, 64-bit (N,): the part of the work that the CPU should take, from 0 to 1",
    "low": "out, 64-bit (N,): where the interval begins that has the `confidence` of the metadata",
    "high": "out, 64-bit (N,): where it ends",
    "familiarity": "out, 64-bit (N,): 1 for a kernel that was learned from, 0 for one farther than any",
    "share_class": "out, 64-bit integer (N,): 0, 25, 50, 75 or 100, what most trees are nearest to",
}


def onnx_of_pool(
    model: KernelModel,
    *,
    confidence: float,
    task: Literal["load-balance", "device-mapping"] = "load-balance",
) -> bytes:
    """The model as the bytes of an ONNX file, with intervals of this confidence.

    For `device-mapping`, `cpu_share`, `low` and `high` are 0 or 1: where the whole launch goes.
    """
    graph = OnnxGraph()
    columns = len(model.features)
    code, inputs = graph.given("code"), graph.given("inputs")
    rows = graph.join(code, inputs)
    nearest, recognised = _nearest(model.pool.memory, code, inputs)
    size = inputs.columns([model.inputs.index(SIZE)])
    known = graph.constant(model.pool.memory.known[None, :])
    place = (size.greater(known).count() + size.greater_or_equal(known).count()) / 2
    wide = graph.join(rows, place, *nearest)
    forest = model.pool.joined
    value = trees(graph, forest, wide)
    heard = _heard(graph, model, recognised)
    share, spread = middle(graph, len(forest.root), value, heard / heard.total())
    familiarity = familiarity_of(graph, model.familiarity, code)
    quantile = model.calibration.quantile(confidence)
    outputs = give_answers(graph, task, share, spread, familiarity, quantile, voted(graph, value, heard))
    described = {
        "model": model.name, "task": task, "confidence": str(confidence),
        "code": json.dumps(model.features[: columns - len(model.inputs)]),
        "inputs": json.dumps(model.inputs), "signature": json.dumps(SIGNATURE),
        "made_by": json.dumps(model.about),
    }  # fmt: skip
    return graph.written(
        model.name,
        [
            input_or_output("code", DOUBLE, ("N", columns - len(model.inputs))),
            input_or_output("inputs", DOUBLE, ("N", len(model.inputs))),
        ],
        outputs,
        described,
        "; ".join(f"{one}: {words}" for one, words in SIGNATURE.items()),
    )


def _apart(graph: OnnxGraph, code: OnnxValue, scaling: Standard, known: NDArray[Any]) -> OnnxValue:
    """(N, K): squared distances of the code from known rows (K, F), both scaled; not below 0."""
    asked = (code - graph.constant(scaling.mean)) / graph.constant(scaling.deviation)
    squared = (asked * asked).total() + graph.constant((known**2).sum(axis=1)[None, :])
    squared = squared - (asked @ graph.constant(known.T)) * 2
    return graph.add("Max", squared, graph.constant(np.array(0.0)))


def _nearest(memory: Memory, code: OnnxValue, inputs: OnnxValue) -> tuple[list[OnnxValue], OnnxValue]:
    """`Memory.nearest`: a value (N, 1) for each of `NEAREST`, and (N, 1) whether the bytes are known."""
    graph = code.graph
    share = graph.constant(memory.share)
    # Kernels stand in the memory once for each of their launches: they are compared once.
    kernels, kernel = np.unique(memory.code, axis=0, return_inverse=True)
    scaled = memory.scaling.apply(kernels.astype(np.float64))
    distance = (
        (_apart(graph, code, memory.scaling, scaled) / len(memory.scaling.mean))
        .root()
        .columns(kernel.ravel())
    )
    same = _same_program(graph, memory, code)
    bytes_apart, group_apart = (
        inputs.columns([number]) - graph.constant(memory.sizes[None, :, number]) for number in (0, 1)
    )
    step = bytes_apart.size() + group_apart.size()
    exact = bytes_apart.equals(graph.constant(np.array(0.0)))

    def nearest(measure: OnnxValue, allowed: OnnxValue) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
        count = allowed.count()
        there = count.greater(graph.constant(np.array(0.0)))
        return allowed.either(measure, np.inf).where_least(), there, count

    first, there, count = nearest(step, same)
    rest = same.both(first.equals(graph.constant(np.arange(len(memory.share))[None, :])).unlike())
    second, there_too, _ = nearest(step, rest)
    alike, known, launches = nearest(distance, exact)
    near = (distance + bytes_apart.size() / SIZE_COUNTS).where_least()
    found = [
        there.either(share.looked_up(first), NOTHING),
        there.either(bytes_apart.at(first) * -1, NOTHING),
        there.either(same.either(share, 0.0).total() / count, NOTHING),
        there_too.either(share.looked_up(second), NOTHING),
        there_too.either(bytes_apart.at(second) * -1, NOTHING),
        known.either(exact.either(share, 0.0).total() / launches, NOTHING),
        known.either(launches, NOTHING),
        known.either(share.looked_up(alike), NOTHING),
        known.either(distance.at(alike), NOTHING),
        share.looked_up(near),
        distance.at(near),
        bytes_apart.at(near) * -1,
    ]
    return found, known


def _same_program(graph: OnnxGraph, memory: Memory, code: OnnxValue) -> OnnxValue:
    """(N, K): whether a known launch is of the same program.

    To compare all features with those of every program takes longer than the trees do. A weighted sum of
    them, which is another one for each program, names the only program that it can be.
    """
    programs, program = np.unique(memory.plain(memory.code), axis=0, return_inverse=True)
    for seed in range(100):
        weight = np.random.default_rng(seed).normal(size=(programs.shape[1], 1))
        sums = (programs.astype(np.float64) @ weight)[:, 0]
        if len(sums) < 2 or np.diff(np.sort(sums)).min() > 1e-10:
            break
    else:
        raise InvalidSetting("Two programs of the model are too alike to be told apart by a sum of features")
    kept = np.delete(np.arange(memory.code.shape[1]), memory.extents)
    asked = code.of(FLOAT).columns(kept)
    asked_sum = asked.of(DOUBLE) @ graph.constant(weight)
    nearest = (asked_sum - graph.constant(sums[None, :])).size().where_least(keep=False)
    differ = graph.constant(programs).looked_up(nearest).equals(asked).unlike().count()
    is_it = differ.equals(graph.constant(np.array(0.0)))
    return nearest.with_axis(1).equals(graph.constant(program.ravel()[None, :])).both(is_it)


def trees(graph: OnnxGraph, forest: Forest, wide: OnnxValue) -> OnnxValue:
    """(N, trees): what each tree says."""
    nodes = len(forest.feature)
    tree = np.searchsorted(forest.root, np.arange(nodes), "right") - 1
    number = np.arange(nodes) - forest.root[tree]
    leaf = forest.left == np.arange(nodes)
    whole = {
        "nodes_treeids": tree, "nodes_nodeids": number, "nodes_featureids": forest.feature,
        "nodes_truenodeids": np.where(leaf, 0, forest.left - forest.root[tree]),
        "nodes_falsenodeids": np.where(leaf, 0, forest.right - forest.root[tree]),
        "target_treeids": tree[leaf], "target_nodeids": number[leaf], "target_ids": tree[leaf],
    }  # fmt: skip
    votes = graph.add(
        "TreeEnsembleRegressor", wide.of(FLOAT), domain="ai.onnx.ml",
        n_targets=len(forest.root),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values=forest.threshold.tolist(), target_weights=forest.value[leaf].tolist(),
        **{name: np.asarray(values).astype(int).tolist() for name, values in whole.items()},
    )  # fmt: skip
    return votes.of(DOUBLE)


def _heard(graph: OnnxGraph, model: KernelModel, recognised: OnnxValue) -> OnnxValue:
    """(N, trees): how much each tree is heard, see `Pooled.votes`; the sums are not 1 yet."""
    pool = model.pool
    trees = [len(pool.forests[name].root) for name in MEMBERS]
    always = np.repeat([{"recalled": pool.trusted, "inputs": 0.0}.get(name, 1.0) for name in MEMBERS], trees)
    known = np.repeat([pool.heard if name == "inputs" else 0.0 for name in MEMBERS], trees)
    return recognised.of(DOUBLE) * graph.constant(known[None]) + graph.constant(always[None])


def give_answers(
    graph: OnnxGraph,
    task: str,
    share: OnnxValue,
    spread: OnnxValue,
    familiarity: OnnxValue,
    quantile: float,
    share_class: OnnxValue,
) -> list[Any]:
    """Name the outputs of a graph and describe them: the share with its interval, familiarity, the class.

    Args:
        share: predicted, in percent of the work.
        spread: how far the trees of the forest disagree about it.
        quantile: of the conformal scores, at the confidence of the interval.
    """
    widened = (familiarity / STRANGE).clipped(0, 1).taken_from(2)
    half = (spread + FLOOR) * widened * quantile
    share = share.clipped(0, 100)
    outputs = {
        "cpu_share": share / 100,
        "low": (share - half).clipped(0, 100) / 100,
        "high": (share + half).clipped(0, 100) / 100,
        "familiarity": familiarity,
        "share_class": share_class,
    }
    if task == "device-mapping":
        whole = {name: outputs[name].at_least(0.5) for name in ("cpu_share", "low", "high")}
        outputs |= {**whole, "share_class": (whole["cpu_share"] * 100).of(INTEGER)}
    for name, found in outputs.items():
        graph.add("Squeeze", found, graph.constant(np.array([1])), named=name)
    return [input_or_output(one, INTEGER if one == "share_class" else DOUBLE, ("N",)) for one in outputs]


def middle(graph: OnnxGraph, trees: int, value: OnnxValue, weight: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """(N, 1) each: the mean of the middle, and the deviation of all; see `Votes`."""
    count = graph.constant(np.array([trees]))
    rising, order = graph.add_several("TopK", value, count, names=("rising", "order"), axis=1, largest=0)
    heard = weight.at(order)
    above = graph.add("CumSum", heard, graph.constant(np.array(1)))
    upper = graph.add("Min", above, graph.constant(np.array(1 - TRIM)))
    lower = graph.add("Max", above - heard, graph.constant(np.array(TRIM)))
    left = graph.add("Max", upper - lower, graph.constant(np.array(0.0)))
    middle = (rising * left).total() / left.total()
    off = value - (value * weight).total()
    return middle, (weight * off * off).total().root()


def voted(graph: OnnxGraph, value: OnnxValue, weight: OnnxValue) -> OnnxValue:
    """(N, 1): the class that most trees are nearest to."""
    classes = np.array(CLASSES, np.float64)
    chosen = (value.with_axis(2) - graph.constant(classes)).size().where_least(2)
    votes = chosen.equals(graph.constant(np.arange(len(classes)))).either(weight.with_axis(2), 0.0).total(1)
    most = graph.add("ArgMax", graph.add("Squeeze", votes, graph.constant(np.array([1]))), axis=1)
    return graph.constant(np.array(CLASSES, np.int64)).looked_up(most)


def familiarity_of(graph: OnnxGraph, near: Familiarity, code: OnnxValue) -> OnnxValue:
    """(N, 1); see `Familiarity.of_each`."""
    known = near.kernels.astype(np.float64)
    nearest = (_apart(graph, code, near.scaling, known).least() / len(near.scaling.mean)).root()
    nearer = (nearest - ROUNDED).greater(graph.constant(near.distance[None])).count()
    return nearer.taken_from(len(near.distance)) / len(near.distance)

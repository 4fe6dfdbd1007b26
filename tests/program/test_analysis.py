"""The five analyses: literal examples, the runs of the reference, random graphs against plain statements."""

from __future__ import annotations

import gzip
import json
import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import AnalysisError, InvalidSetting, UnknownName
from apportion.program.analysis import (
    UNCOUNTABLE,
    analyses,
    eligible_roots,
    packed_chunks,
    run,
    run_packed,
    sample_roots,
)
from apportion.program.exchange import from_json
from apportion.program.llvm import graph_of_ir

INSTRUCTION, VARIABLE, CONSTANT = 0, 1, 2
CONTROL, DATA, CALL = 0, 1, 2

rules = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "analysis.py")))
"The plain Python statement of the reference's rules."


def program(nodes, edges, functions=1):
    """A graph: nodes are (type, text, function, full text), of which the last two may be missing."""
    full = [[*node, *(0, None)[len(node) - 2 :]] for node in nodes]
    return from_json(
        {
            "nodes": [[kind, text, function, 0, text_in_full] for kind, text, function, text_in_full in full],
            "edges": [list(edge) for edge in edges],
            "functions": [[f"f{number}", {}] for number in range(functions)],
            "module": [],
        }
    )


def control(*pairs):
    return [(CONTROL, 0, source, target) for source, target in pairs]


def data(*pairs):
    return [(DATA, 0, source, target) for source, target in pairs]


def answer(graph, analysis, root, mode):
    (found,) = run(graph, analysis, root, mode)
    assert found.root == root
    assert found.error is None
    return found.steps, found.active, set(np.flatnonzero(found.labels).tolist())


ROOT = (INSTRUCTION, "[external]")
A, B, C, D = 1, 2, 3, 4
DIAMOND = program(
    [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c"), (INSTRUCTION, "d"), (VARIABLE, "v")],
    control((A, B), (A, C), (B, D), (C, D)) + data((A, 5), (5, D)),
)
CHAIN = program(
    [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c"), (INSTRUCTION, "d")],
    control((A, B), (B, C), (C, D)),
)


def test_the_reference_finds_that_the_top_of_a_diamond_dominates_it_and_counts_the_variable():
    assert answer(DIAMOND, "dominance", A, "reference") == (4, 4, {A, B, C, D})


def test_true_dominance_takes_as_many_steps_as_the_diamond_is_deep():
    assert answer(DIAMOND, "dominance", A, "exact") == (3, 4, {A, B, C, D})
    assert answer(DIAMOND, "dominance", B, "exact") == (1, 1, {B})


@pytest.mark.parametrize("mode", ["reference", "exact"])
def test_a_chain_is_reached_from_its_top_in_as_many_steps_as_it_has_nodes(mode):
    assert answer(CHAIN, "reachability", A, mode) == (4, 4, {A, B, C, D})
    assert answer(CHAIN, "reachability", D, mode) == (1, 1, {D})


@pytest.mark.parametrize("mode", ["reference", "exact"])
def test_a_variable_depends_on_the_instructions_before_it(mode):
    graph = program(
        [ROOT, (INSTRUCTION, "a"), (VARIABLE, "v1"), (INSTRUCTION, "b"), (VARIABLE, "v2")],
        data((1, 2), (2, 3), (3, 4)) + control((1, 3)),
    )
    assert answer(graph, "datadep", 4, mode) == (3, 2, {1, 3})
    assert answer(graph, "datadep", 2, mode) == (1, 1, {1})


def test_liveness_agrees_with_the_example_of_wikipedia():
    # b1: a = 3; b = 5; d = 4; if a > b   b2: c = a + b; d = 2   b3: c = 4; return b * d + c
    b1, b2, b3, a, b, c, d = range(1, 8)
    graph = program(
        [
            ROOT,
            (INSTRUCTION, "b1"),
            (INSTRUCTION, "b2"),
            (INSTRUCTION, "b3"),
            (VARIABLE, "a"),
            (VARIABLE, "b"),
            (VARIABLE, "c"),
            (VARIABLE, "d"),
        ],
        control((b1, b2), (b1, b3), (b2, b3))
        + data((b1, a), (b1, b), (b1, d), (a, b2), (b, b2), (b2, c), (b2, d), (b, b3), (d, b3), (b3, c)),
    )
    assert eligible_roots(graph, "liveness", "reference").tolist() == [b1, b2]
    assert answer(graph, "liveness", b1, "reference") == (3, 3, {a, b, d})
    assert answer(graph, "liveness", b2, "reference") == (2, 2, {b, d})


def test_the_reference_pops_the_bottom_of_a_diamond_twice():
    assert answer(DIAMOND, "reachability", A, "reference") == (3, 5, {A, B, C, D})
    assert answer(DIAMOND, "reachability", A, "exact") == (3, 4, {A, B, C, D})


def test_an_entry_popped_before_a_node_of_its_own_level_pushes_it_once_more():
    # b and c stand at level 2, and b leads to c: c is queued by a and, before it is marked, by b again.
    graph = program(
        [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c")], control((A, B), (A, C), (B, C))
    )
    assert answer(graph, "reachability", A, "reference") == (3, 4, {A, B, C})
    assert answer(graph, "reachability", A, "exact") == (2, 3, {A, B, C})
    turned = program(
        [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c")], control((A, C), (A, B), (B, C))
    )
    assert answer(turned, "reachability", A, "reference") == (2, 3, {A, B, C})


def squares(count):
    nodes = [ROOT, *[(INSTRUCTION, "x")] * (3 * count + 1)]
    pairs = []
    for top in range(1, 3 * count + 1, 3):
        pairs += [(top, top + 1), (top, top + 2), (top + 1, top + 3), (top + 2, top + 3)]
    return program(nodes, control(*pairs))


def test_pops_that_the_reference_would_need_days_for_are_counted_at_once():
    # Joins are popped 1, 2, 4, … 2^40 times, and each of the two arms between as often as the join above.
    assert answer(squares(40), "reachability", 1, "reference")[:2] == (81, 2**42 - 3)


def test_pops_beyond_counting_stay_at_the_largest_number():
    graph = squares(80)
    steps, active, labels = answer(graph, "reachability", 1, "reference")
    assert (steps, active, len(labels)) == (161, UNCOUNTABLE, 241)
    assert answer(graph, "reachability", 1, "exact")[:2] == (161, 241)


def test_a_long_chain_of_squarings_costs_nothing():
    # %x2 = mul %x1, %x1, …: each value is read twice, so the reference's queue doubles each time.
    text = "define i32 @f(i32 %x0) {\n"
    text += "".join(f"  %x{i} = mul i32 %x{i - 1}, %x{i - 1}\n" for i in range(1, 200))
    graph = graph_of_ir(text + "  ret i32 %x199\n}\n")
    found = run(graph, "datadep", eligible_roots(graph, "datadep", "reference"), "reference")
    assert max(item.steps for item in found) == 398
    assert max(item.active for item in found) == 199


LOOP = program(
    [ROOT, (INSTRUCTION, "entry"), (INSTRUCTION, "header"), (INSTRUCTION, "body"), (INSTRUCTION, "exit")],
    [*control((1, 2), (2, 3), (3, 2), (2, 4)), (CALL, 0, 0, 1)],
)


def test_the_reference_misses_that_the_way_into_a_loop_dominates_its_header():
    assert answer(LOOP, "dominance", 1, "reference")[2] == {1}
    assert answer(LOOP, "dominance", 1, "exact") == (3, 4, {1, 2, 3, 4})
    assert answer(LOOP, "dominance", 2, "exact") == (2, 3, {2, 3, 4})


def test_dominance_of_code_that_nothing_leads_to_starts_at_its_top():
    # 2 → 3 is dead; 4 ⇄ 5 is a dead ring; both leave the living 1 alone.
    graph = program([ROOT, *[(INSTRUCTION, "x")] * 5], [*control((2, 3), (4, 5), (5, 4)), (CALL, 0, 0, 1)])
    labels = {root: answer(graph, "dominance", root, "exact")[2] for root in range(1, 6)}
    assert labels == {1: {1}, 2: {2, 3}, 3: {3}, 4: {4, 5}, 5: {5}}


def test_in_function_0_the_reference_counts_a_step_for_every_constant():
    nodes = [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c", 1), (INSTRUCTION, "d", 1)]
    pairs = control((1, 2), (3, 4))
    without = program(nodes, pairs, functions=2)
    with_constants = program([*nodes, *[(CONSTANT, "i32")] * 7], pairs, functions=2)
    assert answer(without, "dominance", 1, "reference") == (1, 2, {1, 2})
    assert answer(with_constants, "dominance", 1, "reference") == (8, 2, {1, 2})
    assert answer(with_constants, "dominance", 3, "reference") == answer(without, "dominance", 3, "reference")


@pytest.mark.parametrize(("updates", "error"), [(1000, False), (1001, True)])
def test_the_reference_gives_dominance_up_after_1000_updates(updates, error):
    length = updates + 1  # every node of a chain but the root is updated once
    graph = program([ROOT, *[(INSTRUCTION, "x")] * length], control(*pairwise(range(1, length + 1))))
    (found,) = run(graph, "dominance", 1, "reference")
    if error:
        assert found.error == "Dominance fixed-point not found in 1000 steps"
        assert (found.steps, found.active, found.labels.any()) == (0, 0, False)
    else:
        assert (found.steps, found.active, found.error) == (1000, 1001, None)


def test_the_reference_gives_liveness_up_where_empty_sets_chase_each_other_round_a_loop():
    graph = program(
        [ROOT, (INSTRUCTION, "a"), (INSTRUCTION, "b"), (INSTRUCTION, "c")], control((1, 2), (2, 1), (2, 3))
    )
    with pytest.raises(AnalysisError, match=r"^Failed to terminate liveness computation in 5000 steps$"):
        eligible_roots(graph, "liveness", "reference")
    large = program(
        [ROOT, *[(INSTRUCTION, "x")] * 3, *[(CONSTANT, "i32")] * 3000], control((1, 2), (2, 1), (2, 3))
    )
    with pytest.raises(AnalysisError, match="in 6008 steps"):
        run(large, "liveness", 1, "reference")
    assert eligible_roots(graph, "liveness", "exact").tolist() == []


IR = """define i32 @f(i32 %a, i32 %b) {
entry:
  %s = add nsw i32 %a, 7
  %t = mul i32 %s, %s
  %c = icmp slt i32 %t, %b
  br i1 %c, label %yes, label %no
yes:
  %u = add i32 %s, 1
  ret i32 %u
no:
  ret i32 %b
}
"""


def named(graph, *full_texts):
    """The nodes with these full texts."""
    return {node for node, text in enumerate(graph.full_texts()) if text in full_texts}


def test_exact_liveness_labels_every_use_of_a_live_definition_and_no_constant():
    graph = graph_of_ir(IR)
    branch = named(graph, "br i1 %c, label %yes, label %no").pop()
    assert answer(graph, "liveness", branch, "exact")[2] == named(graph, "i32 %s", "i32 %b")
    product = named(graph, "%t = mul i32 %s, %s").pop()
    assert answer(graph, "liveness", product, "exact")[2] == named(graph, "i32 %s", "i32 %t", "i32 %b")
    # The reference sees single uses, and constants.
    live = answer(graph, "liveness", product, "reference")[2]
    assert len(live & named(graph, "i32 %s")) == 1
    assert live >= named(graph, "i32 1")


def test_exact_liveness_covers_a_loop_that_never_ends():
    graph = graph_of_ir(
        "define void @f(i32 %a) {\n  br label %1\n1:\n  %x = add i32 %a, %a\n  br label %1\n}\n"
    )
    jump = 1
    assert answer(graph, "liveness", jump, "exact")[2] == named(graph, "i32 %a")
    with pytest.raises(AnalysisError, match="No eligible root nodes for liveness"):
        run(graph, "liveness", jump, "reference")


def expressions(body, arguments="i32 %a, i32 %b, ptr %p"):
    graph = graph_of_ir(f"define void @f({arguments}) {{\n{body}\n  ret void\n}}\n")
    roots = eligible_roots(graph, "subexpressions")
    classes = {
        frozenset(np.flatnonzero(found.labels).tolist()) for found in run(graph, "subexpressions", roots)
    }
    texts = graph.full_texts()
    return sorted(sorted(texts[node].split(" = ")[0] for node in members) for members in classes)


@pytest.mark.parametrize(
    ("body", "classes"),
    [
        ("%x = add i32 %a, %b\n%y = add i32 %b, %a", [["%x", "%y"]]),
        ("%x = add nsw i32 %a, %b\n%y = add i32 %a, %b", [["%x", "%y"]]),
        ("%x = sub i32 %a, %b\n%y = sub i32 %b, %a", []),
        ("%x = icmp slt i32 %a, %b\n%y = icmp sgt i32 %b, %a", [["%x", "%y"]]),
        ("%x = icmp slt i32 %a, %b\n%y = icmp slt i32 %b, %a", []),
        ("%x = icmp slt i32 %a, %b\n%y = icmp ult i32 %a, %b", []),
        ("%x = icmp eq i32 %a, %b\n%y = icmp eq i32 %b, %a", [["%x", "%y"]]),
        ("%x = zext i32 %a to i64\n%y = zext i32 %a to i128", []),
        ("%x = zext i32 %a to i64\n%y = sext i32 %a to i64\n%z = zext i32 %a to i64", [["%x", "%z"]]),
        ("%x = load i32, ptr %p\n%y = load i32, ptr %p", []),
        ("%x = alloca i32\n%y = alloca i32", []),
        ("%x = getelementptr i8, ptr %p, i32 %a\n%y = getelementptr i32, ptr %p, i32 %a", []),
        ("%x = getelementptr inbounds i8, ptr %p, i8 1\n%y = getelementptr i8, ptr %p, i8 1", [["%x", "%y"]]),
        ("%x = freeze i32 %a\n%y = freeze i32 %a", []),
        ("%x = icmp eq ptr %p, @f\n%y = icmp eq ptr %p, @f\n%z = icmp eq ptr %p, null", [["%x", "%y"]]),
        # Values of values, through different uses, and opaque results shared.
        (
            "%l = load i32, ptr %p\n%x = mul i32 %l, %a\n%y = mul i32 %a, %l\n"
            "%u = xor i32 %x, 1\n%v = xor i32 1, %y",
            [["%u", "%v"], ["%x", "%y"]],
        ),
    ],
)  # fmt: skip
def test_exact_subexpressions_are_the_same_value(body, classes):
    assert expressions(body) == classes


def test_indices_of_aggregates_and_masks_of_vectors_tell_expressions_apart():
    body = """  %x = extractvalue { i32, i32 } %s, 0
  %y = extractvalue { i32, i32 } %s, 1
  %z = extractvalue { i32, i32 } %s, 0
  %u = shufflevector <2 x i32> %v, <2 x i32> %v, <2 x i32> <i32 0, i32 1>
  %w = shufflevector <2 x i32> %v, <2 x i32> %v, <2 x i32> <i32 1, i32 0>"""
    assert expressions(body, "{ i32, i32 } %s, <2 x i32> %v") == [["%x", "%z"]]


def test_calls_never_coincide_and_functions_share_no_expression():
    graph = graph_of_ir(
        "declare i32 @g(i32)\n"
        "define i32 @f(i32 %a) {\n  %x = call i32 @g(i32 1)\n  %y = call i32 @g(i32 1)\n"
        "  %u = add i32 1, 2\n  ret i32 %x\n}\n"
        "define i32 @h() {\n  %u = add i32 1, 2\n  ret i32 %u\n}\n"
    )
    assert eligible_roots(graph, "subexpressions", "exact").tolist() == []
    assert len(eligible_roots(graph, "subexpressions", "reference")) == 4


def test_steps_of_an_exact_subexpression_are_the_way_to_what_it_is_made_of_and_back():
    graph = graph_of_ir(
        "define i32 @f(i32 %a) {\n  %x = add i32 %a, 1\n  %y = add i32 %a, 1\n"
        "  %u = mul i32 %x, 3\n  %v = mul i32 %y, 3\n  ret i32 %u\n}\n"
    )
    steps = {
        graph.full_text(found.root)[:2]: found.steps
        for found in run(graph, "subexpressions", eligible_roots(graph, "subexpressions"))
    }
    assert steps == {"%x": 2, "%y": 2, "%u": 6, "%v": 6}


def test_a_predicate_that_the_graph_does_not_keep_makes_no_expression():
    nodes = [
        ROOT,
        (INSTRUCTION, "icmp"),
        (INSTRUCTION, "icmp"),
        (INSTRUCTION, "add"),
        (INSTRUCTION, "add"),
        (VARIABLE, "i32"),
        (CONSTANT, "i32"),
    ]
    edges = [(DATA, position, 5 + position, node) for node in (1, 2, 3, 4) for position in (0, 1)]
    graph = program(nodes, edges)
    assert eligible_roots(graph, "subexpressions", "exact").tolist() == [3, 4]
    assert eligible_roots(graph, "subexpressions", "reference").tolist() == [1, 2, 3, 4]


# Against the reference, and against statements of the definitions.


def test_reference_mode_equals_every_run_of_the_reference(shared_data):
    compared = dict.fromkeys(analyses, 0)
    with gzip.open(shared_data / "programl-oracle" / "analysis.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            graph = from_json(record["graph"])
            for name, expected in record["labels"].items():
                if "init_error" in expected:
                    with pytest.raises(AnalysisError) as error:
                        eligible_roots(graph, name, "reference")
                    assert str(error.value) == expected["init_error"]
                    continue
                assert eligible_roots(graph, name, "reference").tolist() == expected["eligible"]
                packed = run_packed(graph, name, [item[0] for item in expected["runs"]], "reference")
                for i, item in enumerate(expected["runs"]):
                    counts = [int(packed.steps[i]), int(packed.active[i])]
                    found = [*counts, np.flatnonzero(packed.labels(i)).tolist()]
                    assert [item[0], *([packed.errors[i]] if packed.errors[i] else found)] == item, record[
                        "name"
                    ]
                    compared[name] += 1
    assert min(compared.values()) > 1000, compared


@st.composite
def graphs(draw, most_nodes=9):
    """Any graph at all, parallel edges, rings and diamonds included."""
    count = draw(st.integers(1, most_nodes))
    kinds = draw(
        st.lists(
            st.sampled_from([INSTRUCTION, INSTRUCTION, INSTRUCTION, VARIABLE, CONSTANT]),
            min_size=count,
            max_size=count,
        )
    )
    texts = st.sampled_from(["add", "sub", "icmp", "phi"])
    nodes = [
        (kind, draw(texts) if kind == INSTRUCTION else "i32", draw(st.integers(0, 1)), None) for kind in kinds
    ]
    ends = st.integers(0, count - 1)
    edge = st.tuples(st.sampled_from([CONTROL, CONTROL, DATA, CALL]), st.integers(0, 2), ends, ends)
    return program(nodes, draw(st.lists(edge, max_size=3 * count)), functions=2)


@st.composite
def layered(draw):
    """Levels of nodes with edges inside a level and to the next: where nodes are queued again and again."""
    widths = draw(st.lists(st.integers(1, 3), min_size=2, max_size=6))
    first = np.cumsum([1, *widths])
    pairs = []
    for level, width in enumerate(widths):
        below = widths[level + 1] if level + 1 < len(widths) else 0
        there = range(int(first[level]), int(first[level]) + width + below)
        pair = st.tuples(st.sampled_from(there[:width]), st.sampled_from(there))
        pairs += draw(st.lists(pair, max_size=3 * width))
    pairs = draw(st.permutations(pairs))
    kinds = [INSTRUCTION, *[draw(st.sampled_from([INSTRUCTION, VARIABLE])) for _ in range(sum(widths))]]
    edges = control(*pairs) + data(*[(target, source) for source, target in pairs])
    return program([(kind, "add") for kind in kinds], edges)


def agree_with_the_rules(graph):
    plain = rules.Rules(graph)
    for name in analyses:
        if name == "liveness" and plain.live_out()[1] is not None:
            with pytest.raises(AnalysisError) as error:
                eligible_roots(graph, name, "reference")
            assert str(error.value) == plain.live_out()[1]
            continue
        roots = plain.eligible(name)
        assert eligible_roots(graph, name, "reference").tolist() == roots
        found = rules.answers_of(run_packed(graph, name, roots, "reference"))
        assert found == [plain.run(name, root) for root in roots], name


@given(graphs())
def test_reference_mode_does_what_the_rules_say_on_any_graph(graph):
    agree_with_the_rules(graph)


@given(layered())
def test_reference_mode_counts_the_queue_of_graphs_that_fill_it(graph):
    agree_with_the_rules(graph)


@given(st.integers(0, 2**32), st.integers(20, 120))
def test_reference_mode_does_what_the_rules_say_on_programs(seed, nodes):
    agree_with_the_rules(rules.synthetic(nodes, 2, seed=seed))


def links(graph, flow):
    after = {node: [] for node in range(graph.nodes)}
    for source, target in graph.edges_of(flow).T.tolist():
        after[source].append(target)
    return after


def distances(starts, after, blocked=()):
    """Node → edges from the nearest start, never through `blocked`."""
    level = {node: 0 for node in starts if node not in blocked}
    ring = list(level)
    while ring:
        ring = [
            w for w in dict.fromkeys(w for v in ring for w in after[v]) if w not in level and w not in blocked
        ]
        level |= dict.fromkeys(ring, 1 + max(level.values()))
    return level


@given(st.one_of(graphs(), layered()))
def test_exact_reachability_and_dependence_are_distances(graph):
    forward, backward = links(graph, CONTROL), {node: [] for node in range(graph.nodes)}
    for source, target in graph.edges_of(DATA).T.tolist():
        backward[target].append(source)
    for root in eligible_roots(graph, "reachability").tolist():
        reached = distances([root], forward)
        assert answer(graph, "reachability", root, "exact") == (
            max(reached.values()) + 1, len(reached), set(reached),
        )  # fmt: skip
    for root in eligible_roots(graph, "datadep").tolist():
        reached = distances([root], backward)
        labels = {node for node in reached if graph.node_type[node] == INSTRUCTION}
        assert answer(graph, "datadep", root, "exact") == (max(reached.values()), len(labels), labels)


@given(st.one_of(graphs(), layered()))
def test_exact_dominance_is_what_cannot_be_reached_without_the_root(graph):
    after = links(graph, CONTROL)
    entered = {target for targets in after.values() for target in targets}
    entries = [w for v, w in graph.edges_of(CALL).T.tolist() if v == 0]
    entries += [node for node in range(graph.nodes) if node not in entered]
    for node in range(graph.nodes):
        if node not in distances(entries, after):
            entries.append(node)
    for root in eligible_roots(graph, "dominance").tolist():
        dominated = set(range(graph.nodes)) - set(distances(entries, after, blocked=(root,)))
        steps = 1 + max(level for node, level in distances([root], after).items() if node in dominated)
        assert answer(graph, "dominance", root, "exact") == (steps, len(dominated), dominated)


@given(st.one_of(graphs(), layered(), st.integers(0, 99).map(lambda seed: rules.synthetic(60, seed=seed))))
def test_exact_liveness_is_a_way_to_a_use_without_a_new_definition(graph):
    after, uses = links(graph, CONTROL), links(graph, DATA)
    producers = {node: set() for node in range(graph.nodes) if graph.node_type[node] == VARIABLE}
    for source, target in graph.edges_of(DATA).T.tolist():
        if target in producers:
            producers[target].add(source)
    live = {node: set() for node in range(graph.nodes)}
    readers = {}
    for node, made_by in producers.items():
        same = {other for other in producers if producers[other] == made_by} if made_by else {node}
        readers[node] = {reader for other in same for reader in uses[other]}
        for root in live:
            # What comes after the root, up to and with the first new definition on each way.
            stopping = {v: [] if v in made_by else after[v] for v in after}
            if readers[node] & set(distances(after[root], stopping)):
                live[root].add(node)
    roots = [node for node in live if live[node] and node and graph.node_type[node] == INSTRUCTION]
    assert eligible_roots(graph, "liveness").tolist() == roots
    for root in roots:
        near = distances(after[root], after)
        steps = max(min(near[reader] + 2 for reader in readers[node] & set(near)) for node in live[root])
        assert answer(graph, "liveness", root, "exact") == (steps, len(live[root]), live[root])


# Many roots at once, and choosing them.


@pytest.mark.parametrize("mode", ["exact", "reference"])
@pytest.mark.parametrize("name", analyses)
def test_packed_bits_chunks_and_single_runs_say_the_same(name, mode):
    graph = rules.synthetic(700, 2)
    roots = eligible_roots(graph, name, mode)
    whole = run_packed(graph, name, roots, mode)
    assert whole.bits.shape == (len(roots), -(-graph.nodes // 8))
    chunks = list(packed_chunks(graph, name, mode=mode, chunk_bytes=1000))
    assert len(chunks) > 1
    for field in ("roots", "steps", "active", "bits"):
        joined = np.concatenate([getattr(chunk, field) for chunk in chunks])
        assert np.array_equal(joined, getattr(whole, field)), field
    some = [int(roots[-1]), int(roots[0]), int(roots[-1])]
    for place, found in zip([-1, 0, -1], run(graph, name, some, mode), strict=True):
        assert found.root == roots[place]
        assert (found.steps, found.active) == (whole.steps[place], whole.active[place])
        packed = np.packbits(found.labels, bitorder="little")
        assert np.array_equal(packed, whole.bits[place])


def test_a_graph_of_100000_nodes_gives_all_its_answers_in_bounded_memory():
    graph = rules.synthetic(100_000, 40)
    total = sum(len(chunk) for chunk in packed_chunks(graph, "liveness"))
    assert total == len(eligible_roots(graph, "liveness")) > 40_000
    assert max(chunk.bits.nbytes for chunk in packed_chunks(graph, "reachability")) <= 1 << 26


def test_a_graph_whose_queue_is_too_wide_to_count_is_refused():
    # Three levels of 350 nodes, each node leading to all of its own level and of the next.
    level = np.arange(350)
    pairs = [np.stack([np.ones_like(level), level + 2])]
    for start, end in [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]:
        pairs.append(np.stack(np.meshgrid(level + 2 + 350 * start, level + 2 + 350 * end)).reshape(2, -1))
    edges = np.concatenate(pairs, axis=1).astype(np.int32)
    graph = replace(
        program([ROOT, *[(INSTRUCTION, "x")] * 1051], []),
        edges=edges,
        edge_flow=np.zeros(edges.shape[1], np.uint8),
        edge_position=np.zeros(edges.shape[1], np.int32),
    )
    with pytest.raises(AnalysisError) as error:
        run(graph, "reachability", 1, "reference")
    assert str(error.value) == (
        "The graph is too large (1,052 nodes): counting the reference's queue needs more than 512 MiB. "
        "Analyze one function of it, or fewer roots."
    )
    assert answer(graph, "reachability", 1, "exact")[:2] == (4, 1051)


def test_the_two_rules_draw_a_tenth_of_the_nodes_or_of_the_roots_and_ten_at_most():
    assert len(sample_roots(CHAIN, "reachability")) == 1
    body = "".join(f"  %x{i} = add i32 %a, {i}\n" for i in range(31))
    graph = graph_of_ir(f"define void @f(i32 %a) {{\n{body}  ret void\n}}\n")
    assert graph.nodes == 1 + 31 + 1 + 1 + 31
    assert len(sample_roots(graph, "dominance", "paper")) == 7
    assert len(sample_roots(graph, "dominance", "reference")) == 4
    large = rules.synthetic(1000)
    assert len(sample_roots(large, "dominance")) == len(sample_roots(large, "dominance", "reference")) == 10


def test_a_sample_is_eligible_distinct_ascending_and_drawn_again_by_its_seed():
    graph = rules.synthetic(1000)
    first = sample_roots(graph, "datadep", seed=7)
    assert np.array_equal(first, sample_roots(graph, "datadep", seed=7))
    assert not np.array_equal(first, sample_roots(graph, "datadep", seed=8))
    assert np.all(np.diff(first) > 0)
    assert np.isin(first, eligible_roots(graph, "datadep")).all()
    assert sample_roots(CHAIN, "dominance", count=99).tolist() == [1, 2, 3, 4]


EMPTY = program([], [], functions=0)


@pytest.mark.parametrize("name", analyses)
@pytest.mark.parametrize("mode", ["exact", "reference"])
def test_an_empty_graph_has_no_eligible_root(name, mode):
    assert eligible_roots(EMPTY, name, mode).tolist() == []
    with pytest.raises(AnalysisError, match=f"^No eligible root nodes for {name}: the graph is empty.$"):
        sample_roots(EMPTY, name, mode=mode)


INSTRUCTIONS = "roots are instructions of a function. Eligible: 1, 2, 3, 4."


@pytest.mark.parametrize(
    ("name", "mode", "root", "message"),
    [
        (
            "reachability",
            "exact",
            0,
            f"Node 0 ([external]) is no eligible root for reachability: {INSTRUCTIONS}",
        ),
        ("dominance", "exact", 5, f"Node 5 (v) is no eligible root for dominance: {INSTRUCTIONS}"),
        (
            "datadep",
            "exact",
            1,
            "Node 1 (a) is no eligible root for datadep: roots are variables. Eligible: 5.",
        ),
        (
            "liveness",
            "exact",
            4,
            "Node 4 (d) is no eligible root for liveness: nothing is live after it. Eligible: 1, 2, 3.",
        ),
        (
            "liveness",
            "reference",
            4,
            "Node 4 (d) is no eligible root for liveness: nothing is live after it, or it cannot reach an "
            "exit of its function, which the reference leaves out. Eligible: 1, 2, 3.",
        ),
        (
            "subexpressions",
            "exact",
            1,
            "No eligible root nodes for subexpressions: no two of its instructions compute the same.",
        ),
    ],
)
def test_a_root_that_cannot_be_one_is_refused_with_those_that_can(name, mode, root, message):
    with pytest.raises(AnalysisError) as error:
        run(DIAMOND, name, root, mode)
    assert str(error.value) == message


@pytest.mark.parametrize("root", [6, -1, 2**40])
def test_a_node_that_is_not_there_is_no_root(root):
    with pytest.raises(AnalysisError) as error:
        run(DIAMOND, "dominance", root)
    assert str(error.value) == (f"There is no node {root}: the graph has nodes 0 to 5. Eligible: 1, 2, 3, 4.")


def test_wrong_names_and_values_are_refused():
    with pytest.raises(UnknownName, match="Did you mean 'dominance'"):
        eligible_roots(DIAMOND, "dominanse")
    with pytest.raises(UnknownName, match="No mode called 'textbook'"):
        run(DIAMOND, "dominance", 1, "textbook")
    with pytest.raises(UnknownName, match="No sampling rule called 'thesis'"):
        sample_roots(DIAMOND, "dominance", "thesis")
    with pytest.raises(InvalidSetting, match="Roots are node numbers, not float64"):
        run(DIAMOND, "dominance", [1.5])
    with pytest.raises(InvalidSetting, match="must be at least 1, not 0"):
        sample_roots(DIAMOND, "dominance", count=0)
    with pytest.raises(InvalidSetting, match="chunk_bytes must be at least 1"):
        next(packed_chunks(DIAMOND, "dominance", chunk_bytes=0))
    assert run(DIAMOND, "dominance", []) == []

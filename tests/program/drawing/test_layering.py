from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apportion.program.drawing.layering import arrange


def test_edges_run_down() -> None:
    layers = arrange([(50, 20)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], gap_x=10, gap_y=30)
    tops = [y for _, y in layers.corners]
    assert tops == [0, 50, 50, 100]
    assert layers.height == 120
    assert layers.back == frozenset()


def test_a_diamond_is_centred_over_its_arms() -> None:
    layers = arrange([(50, 20)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)], gap_x=10, gap_y=30)
    top, left, right, bottom = (x + 25 for x, _ in layers.corners)
    assert abs(top - (left + right) / 2) < 0.1
    assert abs(bottom - top) < 0.1


def test_a_long_edge_passes_beside_the_boxes_between() -> None:
    layers = arrange([(50, 20)] * 3, [(0, 1), (1, 2), (0, 2)], gap_x=10, gap_y=30)
    (x, y), (x_below, y_below) = layers.paths[0, 2]
    left = layers.corners[1][0]
    assert x == x_below
    assert not left <= x <= left + 50
    assert (y, y_below) == (50, 70)


def test_the_edge_that_closes_a_loop_is_told_apart() -> None:
    layers = arrange([(50, 20)] * 3, [(0, 1), (1, 1), (1, 2), (2, 0)], gap_x=10, gap_y=30)
    assert layers.back == {(1, 1), (2, 0)}
    assert set(layers.paths) == {(0, 1), (1, 2)}


def test_crossings_that_need_not_be_are_removed() -> None:
    layers = arrange([(50, 20)] * 4, [(0, 3), (1, 2)], gap_x=10, gap_y=30)
    assert (layers.corners[0][0] < layers.corners[1][0]) == (layers.corners[3][0] < layers.corners[2][0])


@given(
    sizes=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=9),
    pairs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20),
)
def test_no_two_boxes_overlap_and_none_leaves_the_page(
    sizes: list[tuple[int, int]], pairs: list[tuple[int, int]]
) -> None:
    edges = [(a, b) for a, b in pairs if a < len(sizes) and b < len(sizes)]
    layers = arrange(sizes, edges, gap_x=10, gap_y=30)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(layers.corners, sizes, strict=True)]
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert left >= -1e-6
        assert right <= layers.width + 1e-6
        assert bottom <= layers.height + 1e-6
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top

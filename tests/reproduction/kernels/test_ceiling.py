"""What bounds every predictor, on kernels made here."""

from __future__ import annotations

import pytest

from apportion.data.records import Example
from apportion.learn.shares.kernel_table import KernelTable, table_of
from reproduction.kernels.ceiling import alike, near, neighbours, redrawn, section
from reproduction.kernels.distribution import class_counts, figure, share_counts

IR = "define void @k(float* %x) {{\n{body}\n  ret void\n}}\n"


def example(number: int, *, adds: int, bytes_moved: int, gpu_time: float, source: str) -> Example:
    body = "\n".join(f"  %v{i} = fadd float 1.0, 2.0" for i in range(adds))
    return Example(
        f"row{number}", "s", f"a{source}", "k", source, IR.format(body=body), bytes_moved, 64, 1.0, gpu_time
    )


@pytest.fixture(scope="module")
def table() -> KernelTable:
    return table_of(
        "pair",
        [
            # Equal in everything but their times: no predictor gets both.
            example(0, adds=1, bytes_moved=1024, gpu_time=0.5, source="one"),
            example(1, adds=1, bytes_moved=1024, gpu_time=2.0, source="one"),
            # The same source at twice the size, and a quarter of the GPU's time.
            example(2, adds=5, bytes_moved=1 << 20, gpu_time=4.0, source="two"),
            example(3, adds=5, bytes_moved=1 << 21, gpu_time=1.5, source="two"),
            example(4, adds=9, bytes_moved=1 << 26, gpu_time=9.0, source="three"),
        ],
        5,
    )


def test_rows_alike_with_labels_apart_bound_every_predictor(table: KernelTable) -> None:
    found = alike(table)
    assert (found.groups, found.rows) == (1, 2)
    assert found.accuracy == pytest.approx(4 / 5)
    # Shares of 33 and 67 percent, answered with 50.
    assert found.mae == pytest.approx((17 + 17) / 5)


def test_near_rows_are_sorted_by_how_far_their_sizes_are(table: KernelTable) -> None:
    found = {one.sizes: one for one in near(table)}
    assert found["the same"].rows == 2
    assert found["the same"].other_device == 1.0
    assert found["up to twice"].difference == pytest.approx(80 - 60)


def test_the_nearest_neighbour_is_never_the_row_itself_nor_one_that_is_not_asked(table: KernelTable) -> None:
    any_row, other_sources, other_applications = neighbours(table)
    assert any_row.wrong_device == pytest.approx(2 / 5)
    assert other_sources.difference > 20
    assert other_applications.difference == other_sources.difference
    assert any_row.best_accuracy(2) == pytest.approx(1 - 0.5 * (1 - (1 - 0.8) ** 0.5))


def test_of_other_applications_rows_of_an_equal_graph_are_not_asked() -> None:
    sizes = {"one": 1024, "two": 1025, "three": 1 << 20}
    kernels = [
        example(n, adds=9 if name == "three" else 1, bytes_moved=size, gpu_time=float(n + 1), source=name)
        for n, (name, size) in enumerate(sizes.items())
    ]
    table = table_of("pair", kernels, 3)
    sources, applications = neighbours(table)[1:]
    # The first two have one graph: by source each is the other's neighbour, by application the third is.
    first, second, third = table.shares
    nearer = min(abs(third - first), abs(third - second))
    assert sources.difference == pytest.approx((2 * abs(first - second) + abs(third - second)) / 3)
    assert applications.difference >= (abs(third - first) + abs(third - second) + nearer) / 3 - 1e-9


def test_noise_moves_labels_and_more_noise_moves_more(table: KernelTable) -> None:
    little, _, much = redrawn(table)
    assert 0.9 < much.accuracy <= little.accuracy <= 1
    assert 0 < little.mae < much.mae


def test_the_section_has_a_table_of_each(table: KernelTable) -> None:
    text = "\n".join(section(table))
    assert "2 rows stand in 1 groups" in text
    assert "| any other row |" in text
    assert "| 10% |" in text


def test_the_figure_shows_both_distributions(table: KernelTable) -> None:
    assert class_counts(table) == [0, 1, 1, 2, 1]
    assert sum(share_counts(table)) == 5
    drawn = figure(table)
    assert drawn.startswith("<svg")
    assert drawn.count("<rect") == 1 + 5 + 20
    assert "<title>75: 2</title>" in drawn

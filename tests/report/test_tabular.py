from xml.etree import ElementTree

import pytest

from apportion.report.tabular import html_table, markdown_table


def test_a_table_in_markdown_aligns_numbers_to_the_right():
    assert markdown_table(["name", "ms", "of"], [["a", 1, "x"], ["b", 2.5, "y"]], align="lr").split("\n") == [
        "| name | ms | of |",
        "|---|---:|---:|",
        "| a | 1 | x |",
        "| b | 2.5 | y |",
    ]


def test_a_row_must_have_a_cell_for_each_column():
    with pytest.raises(ValueError, match="2 cells do not go under 1 columns"):
        markdown_table(["name"], [["a", "b"]])


def test_a_table_in_html_escapes_its_cells():
    table = ElementTree.fromstring(html_table(["a<b", "n"], [["<i>", 1]], align="lr"))
    assert [cell.text for cell in table.iter("td")] == ["<i>", "1"]
    assert [cell.get("class") for cell in table.iter("th")] == [None, "n"]


def test_a_table_without_rows_says_so():
    assert html_table(["a"], []) == "<p>None.</p>"

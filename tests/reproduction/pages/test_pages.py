"""Every results page is made again from what is stored of it, and is the one that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.errors import MalformedInput, UnreadableFile
from reproduction.__main__ import main
from reproduction.campaign.run import MEASURED
from reproduction.pages.kept_tables import KEPT, render, take
from reproduction.pages.run import PAGES

RESULTS = Path(__file__).parents[3] / "docs" / "results"
KEPT_PAGES = [name for name, page in PAGES.items() if page.again is None]


def test_every_results_page_is_in_the_table():
    assert sorted(PAGES) == sorted(path.stem for path in RESULTS.glob("*.md"))


@pytest.mark.parametrize("name", KEPT_PAGES)
def test_a_page_made_again_from_its_words_and_tables_is_the_one_that_is_there(name: str):
    again = f"change what is in {KEPT}, or run: python -m reproduction pages --take {name}"
    assert render(name) == (RESULTS / f"{name}.md").read_text(), again


@pytest.mark.parametrize(
    "name",
    ["dataflow-published", "energy", "hostile", "policies", "programs", "relative-programs", "service"],
)
def test_a_page_made_again_from_stored_measurements_is_the_one_that_is_there(name: str, tmp_path: Path):
    with pytest.raises(SystemExit) as ended:
        main(["pages", name, "--out", str(tmp_path)])
    assert not ended.value.code
    assert (tmp_path / f"{name}.md").read_text() == (RESULTS / f"{name}.md").read_text()


def test_the_words_of_the_page_of_the_campaign_are_the_stored_ones():
    """Its numbers take a minute; see `python -m reproduction pages campaign`."""
    words = json.loads((MEASURED / "xeon-h200.json").read_text())["remarks"]
    assert words in (RESULTS / "campaign.md").read_text()


def test_nothing_else_is_kept():
    kept = {path.name for path in KEPT.iterdir()}
    assert kept == {f"{name}{end}" for name in KEPT_PAGES for end in (".md.jinja", ".json")}


def test_a_page_is_taken_apart_and_put_together(tmp_path: Path):
    page = "# A\n\nOne.\n\n| a | b |\n|---|---:|\n| x \\| y | 1 |\n|  | 2 |\n\n| c |\n|---|\n| z |\n\nTwo.\n"
    take("a", page, tmp_path)
    words = (tmp_path / "a.md.jinja").read_text()
    assert words == "# A\n\nOne.\n\n{{ table.a }}\n\n{{ table.a_2 }}\n\nTwo.\n"
    assert render("a", tmp_path) == page
    (tmp_path / "a.md.jinja").write_text(words.replace("One.", "Other words."))
    assert render("a", tmp_path) == page.replace("One.", "Other words.")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("| a | b |\n|---|---|\n| 1 |\n", "rows are not alike"),
        ("| a | b |\n| 1 | 2 |\n", "rows are not alike"),
        ("{{ table.a }}", "a template would take for its own"),
    ],
)
def test_a_page_that_cannot_be_taken_apart_is_refused(page: str, message: str, tmp_path: Path):
    with pytest.raises(MalformedInput, match=message):
        take("a", page, tmp_path)
    with pytest.raises(UnreadableFile, match="Cannot read"):
        render("a", tmp_path)


def test_the_command_lists_the_pages_and_makes_the_one_that_is_named(tmp_path: Path, capsys):
    for words in ([], ["graphs", "--out", str(tmp_path)]):
        with pytest.raises(SystemExit) as ended:
            main(["pages", *words])
        assert not ended.value.code
    assert "python -m benchmarks graphs" in capsys.readouterr().out
    assert (tmp_path / "graphs.md").read_text() == (RESULTS / "graphs.md").read_text()
    with pytest.raises(SystemExit) as ended:
        main(["pages", "grafs"])
    assert ended.value.code == 1
    assert "Did you mean 'graphs'?" in capsys.readouterr().err

"""What mkdocs.yml leaves out: pages made from the code, lists of pages, links that leave docs/."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import apportion
from apportion.cli import app

ROOT = Path(__file__).parents[1]
LISTS = {"How to": "howto", "Decisions": "decisions", "Results": "results"}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
log = get_plugin_logger(__name__)


def on_config(config: Any) -> Any:
    """Fill the lists of pages that mkdocs.yml leaves empty."""
    config.nav = [_filled(entry) for entry in config.nav]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code."""
    pages = {"reference/command-line.md": command_line(), "reference/python.md": python_names()}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(text: str, *, page: Page, config: Any, files: Files) -> str:
    """Turn links to files outside docs/ into their paths, and warn of one that is not there."""
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith(("mailto:", "/")):
            return link[0]
        path = _normal(folder / target)
        if not (ROOT / path).exists() and files.get_file_from_path(path.removeprefix("docs/")) is None:
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        if (path.startswith("docs/") and (ROOT / path).is_file()) or page.file.src_uri.startswith(
            "reference/"
        ):
            return link[0]
        said = link["text"]
        return f"`{path}`" if said.strip("`") in (path, PurePosixPath(path).name) else f"{said} (`{path}`)"

    return _LINK.sub(rewritten, text)


def command_line() -> str:
    """Every verb with its arguments, as `--help` has them."""
    text: str = app.generate_docs(output_format="markdown", recursive=True)
    body = text.partition("## Table of Contents")[2]
    body = body[body.index("**Ask**") :] if "**Ask**" in body else body
    return (
        "# Command line\n\nEvery verb has `--help`; what a program might read has `--json`. "
        f"This page is made from the code of version {apportion.__version__}.\n\n{body}"
    )


def python_names() -> str:
    """Every public name, with its signature and docstring."""
    names = [name for name in apportion.__all__ if name not in ("__version__", "together")]
    functions = [name for name in names if name[0].islower()]
    types = [name for name in names if name[0].isupper()]
    lines = [
        "# Python",
        "",
        "What `import apportion` offers. Everything loads when it is first used, and everything has types. "
        "`together` is the former name of `share`.",
        "",
    ]
    for title, group in (("Functions", functions), ("Types", types)):
        lines += [f"## {title}", ""]
        for name in group:
            lines += [
                f"### `apportion.{name}` {{ #{name} }}",
                "",
                f"::: {apportion._HOMES[name].replace(':', '.')}",
                "    options:",
                "      show_root_heading: false",
                "      heading_level: 4",
                "",
            ]
    return "\n".join(lines)


def _filled(entry: Any) -> Any:
    ((title, value),) = entry.items()
    if title in LISTS:
        return {
            title: sorted(
                f"{LISTS[title]}/{path.name}" for path in (ROOT / "docs" / LISTS[title]).glob("*.md")
            )
        }
    return {title: [_filled(one) for one in value]} if isinstance(value, list) else entry


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)

"""Results as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
:root { --ink: #1d2129; --soft: #667; --line: #dde; --paper: #fff; --card: #f6f7fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9ebf0; --soft: #9aa; --line: #3a3f4b; --paper: #15181e; --card: #1e222b }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 54rem; margin: 2.5rem auto; padding: 0 1rem;
       color: var(--ink); background: var(--paper) }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
p, figcaption { color: var(--soft); margin: .2rem 0 1.4rem } figure { margin: 1rem 0 }
.cards { display: flex; gap: 1rem; flex-wrap: wrap }
.cards div { background: var(--card); border-radius: 10px; padding: .8rem 1.1rem; flex: 1 1 9rem }
.cards b { display: block; font-size: 1.55rem; line-height: 1.2 } .cards span { color: var(--soft) }
.good { color: #1d8a4e } .bad { color: #c4352b } .scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .95rem }
td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: var(--ink) }
svg .soft { fill: var(--soft) }
.key { color: var(--soft); font-size: .9rem }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .35rem 0 .9rem;
         vertical-align: -1px }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page: its title, then these parts, which are HTML."""
    name = escape(title)
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"/><title>{name}</title>',
            f'<meta name="viewport" content="width=device-width, initial-scale=1"/><style>{_STYLE}</style>',
            f"</head><body><h1>{name}</h1>",
            *(part for part in parts if part),
            "</body></html>\n",
        ]
    )


def heading(words: str) -> str:
    """The heading of a section."""
    return f"<h2>{escape(words)}</h2>"


def paragraph(words: str) -> str:
    """A paragraph of text."""
    return f"<p>{escape(words)}</p>"


def figure(drawing: str, caption: str = "") -> str:
    """A drawing with what there is to say of it."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{drawing}{below}</figure>"


def key(colours: Iterable[tuple[str, str]], more: str = "") -> str:
    """What colours stand for: pairs of a colour and its name."""
    said = "".join(f'<i style="background:{colour}"></i>{escape(name)}' for colour, name in colours)
    return f'<div class="key">{said} {escape(more)}</div>'

"""Tiles in XLA's optimised HLO: which one the Triton emitter was told to make a matrix product with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from apportion.measure.space import Configuration

_HEAD = re.compile(r"^\s*(?:ENTRY\s+)?%?([\w.-]+)\s*(?:\(.*->.*)?\{\s*$")
_CALLS = re.compile(r"\bfusion\(.*\bcalls=%?([\w.-]+)")
_DOT = re.compile(r"\bdot\((?:[^()%]*%)?([\w.-]+)")
_NAME = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.-]+)\s*=")
_CONTRACTING = re.compile(r"lhs_contracting_dims=\{(\d+)")
_OUTPUT = re.compile(r"\boutput_tile(?:s|_sizes)\"?\s*:\s*\[\s*(?:\{\s*\"?sizes\"?\s*:\s*\[)?([\s\d\",]*)\]")
_SIZES = re.compile(r"\bsizes\"?\s*:\s*\[([\s\d\",]*)\]")
_NUMBERS = {
    "BLOCK_M": "block_m", "BLOCK_N": "block_n", "BLOCK_K": "block_k",
    "num_warps": "num_warps", "num_stages": "num_stages",
}  # fmt: skip


def tiles_of(text: str) -> list[dict[str, int]]:
    """The tile of each product that a fusion makes; a parameter that XLA does not show is left out.

    XLA has written a tile in three ways: as the autotuner's block sizes; as the tile of the fusion's result
    with those of the operands on fusions inside it; and as that of the result with the depth on the product.
    """
    bodies = _computations(text)
    return [
        _tile(_configuration(line), bodies[found[1]])
        for lines in bodies.values()
        for line in lines
        if (found := _CALLS.search(line)) and any(_DOT.search(inner) for inner in bodies.get(found[1], ()))
    ]


def wrong_tile(text: str, one: Configuration, characters: int) -> str:
    """Why a program does not make its products with a configuration's tile; empty when it does."""
    tiles = tiles_of(text)
    if not tiles or not all({"BLOCK_M", "BLOCK_N"} <= tile.keys() for tile in tiles):
        return f"no tile in XLA's program: {_shown(text)}"[:characters]
    for tile in tiles:
        if any(one[name] != value for name, value in tile.items()):
            return f"XLA used another tile: {tile} in {_shown(text)}"[:characters]
    return ""


def _tile(configuration: str, body: list[str]) -> dict[str, int]:
    tile = {}
    for name, word in _NUMBERS.items():
        if found := re.search(rf"\b{word}\"?\s*:\s*\"?(\d+)", configuration):
            tile[name] = int(found[1])
    if "BLOCK_M" not in tile and len(sizes := _numbers(_OUTPUT, configuration)) >= 2:
        tile["BLOCK_M"], tile["BLOCK_N"] = sizes[-2:]  # before them, ones for the batch
        depth = _depth(body)
        if depth is not None:
            tile["BLOCK_K"] = depth
    return {name: tile[name] for name in _NUMBERS if name in tile}


def _depth(body: list[str]) -> int | None:
    """What the product of a fusion takes of the summed dimension at a time."""
    dot = next(line for line in body if _DOT.search(line))
    if own := _numbers(_SIZES, _configuration(dot)):
        return own[-1]
    operand, contracting = _DOT.search(dot), _CONTRACTING.search(dot)
    for line in body:
        name = _NAME.match(line)
        if operand and contracting and name and name[1] == operand[1]:
            sizes = _numbers(_OUTPUT, _configuration(line))
            return sizes[int(contracting[1])] if int(contracting[1]) < len(sizes) else None
    return None


def _configuration(line: str) -> str:
    return line.partition("backend_config=")[2]


def _numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    found = pattern.search(text)
    return [int(number) for number in re.findall(r"\d+", found[1])] if found else []


def _computations(text: str) -> dict[str, list[str]]:
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if found := _HEAD.match(line):
            lines = bodies.setdefault(found[1], [])
        else:
            lines.append(line)
    return bodies


def _shown(text: str) -> str:
    """What XLA says of how the program's entry is made."""
    return " ".join(_entry(text)) or "nothing"


def _entry(text: str) -> Iterator[str]:
    _, _, entry = text.rpartition("ENTRY")
    for line in entry.splitlines():
        name = _NAME.match(line)
        if name and re.search(r"\b(fusion|custom-call|dot)\(", line):
            target = re.search(r'custom_call_target="([^"]*)"', line)
            settings = re.search(r"fusion_backend_config\"?\s*:.*", _configuration(line))
            how = settings[0] if settings else _configuration(line)
            yield " ".join([name[1], *(target.groups() if target else ()), how])

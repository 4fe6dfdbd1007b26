"""LLVM IR text of any version → ProgramGraph, by the native builder.

Four variants exist, because three different "ProGraML graphs" do (docs/decisions/0002-graph-variants.md):

`reference`    what `programl` 0.3.2 builds, faults included: only plain `call`s of a function get call edges.
`corrected`    the same, with call edges also for invoke, callbr, aliases and casts.
`ddf`          the 2020 dataset: root `<root>`, and only one pointer level over a structure abbreviated.
`development`  the unreleased one: variables are `var`, constants `val`, and types are nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from apportion import _native
from apportion.errors import InvalidSetting, MalformedIR, UnknownName
from apportion.program.graph import Function, Module, ProgramGraph, StringTable

Variant = Literal["reference", "corrected", "ddf", "development"]
VARIANTS: tuple[Variant, ...] = ("reference", "corrected", "ddf", "development")
ROOT_TEXT = {"ddf": "<root>"}


@dataclass(frozen=True)
class GraphOptions:
    """How a program becomes a graph."""

    variant: Variant = "reference"
    "Whose graphs to build; see the module's text."
    function: str | None = None
    "Keep only this function and what it refers to, directly or not."
    recover_pointees: bool = True
    "Show an opaque `ptr` as what its uses say it points to, so that vocabularies of typed pointers fit."
    full_text: bool = True
    "Keep each node as the program prints it; without, graphs are built faster and are much smaller."
    type_nodes: bool = False
    "Types become nodes (always so in `development`)."
    variable_per: Literal["use", "definition"] = "use"
    "The reference has one variable node for each use of a value; `definition` has one for each value."

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UnknownName("graph variant", self.variant, VARIANTS)
        if self.variable_per not in ("use", "definition"):
            raise InvalidSetting(f"variable_per must be 'use' or 'definition', not {self.variable_per!r}")
        if self.function == "":
            raise InvalidSetting("function must be the name of a function, not an empty text")


_DEFAULT = GraphOptions()


def graph_of_ir(
    text: str | bytes, *, name: str = "<input>", options: GraphOptions = _DEFAULT
) -> ProgramGraph:
    """The program graph of a module.

    Args:
        text: LLVM IR as text, of any version from 3.x to 22.
        name: what errors and, without a `source_filename`, the module are called.
        options: which graph to build.

    Raises:
        MalformedIR: the text is not LLVM IR; carries line and column.
        UnknownName: `options.function` is not defined in the module; lists those that are.
    """
    source = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    found = _native.graph_of_text(
        source,
        root_text=ROOT_TEXT.get(options.variant, "[external]"),
        module_name=name,
        only_function=options.function or "",
        one_pointer_level=options.variant == "ddf",
        unnamed_types_by_address=options.variant in ("reference", "ddf"),
        calls_through_everything=options.variant == "corrected",
        type_nodes=options.type_nodes or options.variant == "development",
        variable_per_definition=options.variable_per == "definition",
        recover_pointees=options.recover_pointees,
        full_text=options.full_text,
    )
    if isinstance(found, tuple):
        message, line, column = found
        raise MalformedIR(message, file=name, line=line, column=column)
    if isinstance(found, list):
        raise UnknownName("function", options.function or "", found)
    module_name, module_features = found["module"]
    return ProgramGraph(
        node_type=found["node_type"],
        node_text=found["node_text"],
        node_full_text=found["node_full_text"],
        node_function=found["node_function"],
        node_block=found["node_block"],
        edge_flow=found["edge_flow"],
        edge_position=found["edge_position"],
        edges=found["edges"],
        strings=StringTable(found["string_data"], found["string_offsets"]),
        functions=tuple(Function(*function) for function in found["functions"]),
        modules=(Module(module_name, module_features),),
        node_features=found["node_features"],
    )

"""`apportion rank predict`: configurations of a program in their predicted order, none of them measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.command_tuning import space_of
from apportion.advise.layout_tuning import tunable_layouts
from apportion.advise.program_ranking import GraphOf, ProgramRanking, TiledKernel, rank_configurations
from apportion.advise.tuning import Tunable
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.measure.space import Space
from apportion.measure.tuning_table import space_of_t1
from apportion.program.hlo.jax import object_of, spec_of

_LIST = Parameter(negative="")
_MANY = Parameter(consume_multiple=True, negative="")


def predict(
    program: str,
    *,
    shapes: Annotated[tuple[str, ...], _MANY] = (),
    param: Annotated[tuple[str, ...], _LIST] = (),
    allowed: str | None = None,
    space: Path | None = None,
    tile: Annotated[tuple[str, ...], _MANY] = (),
    reduced: Annotated[tuple[str, ...], _MANY] = (),
    configurations: int = 1_000,
    model: str | None = None,
    top: int = 10,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Order the configurations of a program by how fast they are predicted to be; nothing is run.

    With --param or --space these are the tiles of a kernel, such as one of Triton's; without, the layouts of
    a JAX function. `apportion tune` starts from the same order.

    Args:
        program: What is computed: a JAX function, as file.py:name or module:name, with its --shapes; for
            tiles also a file of HLO. Or an `apportion.Tunable` that says its graph.
        shapes: What the function is called with: f32[128,256] f32[256].
        param: A parameter of the kernel and its values: BLOCK_M=32,64,128. How it is launched is read from
            num_warps, num_stages, GROUP_M and SPLIT_K.
        allowed: Which combinations there are, as an expression: "BLOCK_M * BLOCK_N <= 16384".
        space: Instead of --param: a file with the space, in the T1 schema or as {"BLOCK_M": [32, 64]}.
        tile: The parameters that are the tile of the result; when not given, all but those of the launch and
            those that end in K.
        reduced: The parameters that are the tile of the dimension that is reduced; when not given, those that
            end in K.
        configurations: Of a function's layouts, how many are drawn.
        model: The name or the folder of a ranker: see `apportion models list --question ranking`.
        top: How many are shown; all with --json.
        seed: Seed of the random numbers.
        json: Print the whole order as JSON.
    """
    graph_of, chosen = _asked(
        program, shapes, _space(param, allowed, space), tile, reduced, configurations, seed
    )
    found = rank_configurations(graph_of, chosen, model=model, seed=seed)
    for warning in found.warnings:
        note(f"Warning: {warning}.")
    if json:
        print_json(found.as_json())
    else:
        _show(found, top)


def _space(param: tuple[str, ...], allowed: str | None, file: Path | None) -> Space | None:
    if file is not None:
        if param or allowed:
            raise InvalidSetting("Give the space either as --param … or as a --space file")
        return space_of_t1(file)
    if allowed and not param:
        raise InvalidSetting("--allowed says which combinations of --param there are: give these too")
    return space_of(param, allowed=allowed) if param else None


def _asked(
    program: str, shapes: tuple[str, ...], space: Space | None, tile: tuple[str, ...],
    reduced: tuple[str, ...], configurations: int, seed: int,
) -> tuple[GraphOf, Space]:  # fmt: skip
    if space is not None:
        return TiledKernel.of(program, shapes, output=tile, reduced=reduced), space
    if tile or reduced:
        raise InvalidSetting("--tile and --reduced name parameters: give these with --param or --space")
    if ":" not in program:
        raise InvalidSetting(
            f"{program} alone has no configurations: give the parameters of a kernel with --param or "
            "--space, or a JAX function (file.py:name), whose layouts are ordered"
        )
    found = object_of(program)
    if isinstance(found, Tunable):
        if found.graph is None:
            raise InvalidSetting(
                f"{program} does not say its graph: give the Tunable graph=TiledKernel.of(function, shapes)"
            )
        return found.graph, found.configurations
    if not callable(found):
        raise InvalidSetting(f"{program} is neither an apportion.Tunable nor a function")
    if not shapes:
        raise InvalidSetting(f"{program} is a function: say the --shapes that it is called with")
    layouts = tunable_layouts(found, [spec_of(shape) for shape in shapes], configurations, seed=seed)
    assert layouts.graph is not None
    return layouts.graph, layouts.configurations


def _show(found: ProgramRanking, top: int) -> None:
    ranked = found.configurations[:top]
    names = tuple(ranked[0].configuration)
    # What all of those shown agree in is said once.
    varied = [name for name in names if len({str(one.configuration[name]) for one in ranked}) > 1]
    columns = ("", *varied, "place", f"{found.confidence:.0%} interval")
    rows = [
        (
            number, *(str(one.configuration[name]) for name in varied), f"{one.place:.1%}",
            f"{one.interval[0]:.0%} to {one.interval[1]:.0%}",
        )
        for number, one in enumerate(ranked, 1)
    ]  # fmt: skip
    title = (
        f"{len(found.configurations):,} configurations by {found.model}, familiarity {found.familiarity:.2f}"
    )
    print_table(columns, rows, right=(columns[0], "place"), title=title)
    same = [f"{name}={ranked[0].configuration[name]}" for name in names if name not in varied]
    if same:
        note(f"All of these have {', '.join(same)}.")

"""`apportion predict`: which share of a kernel's work the CPU should take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from apportion.advise.prediction import Prediction
from apportion.advise.predictor import predict as predict_share
from apportion.advise.predictor import predict_all
from apportion.advise.queries import MeasuredQuery, Query, read_rows, size_in_words, size_of
from apportion.cli.building import USUAL, Building
from apportion.cli.inspect import print_machine
from apportion.cli.show import note, print_json, print_table
from apportion.errors import ApportionError, InvalidSetting, MalformedInput
from apportion.program.source import Source


def predict(
    *sources: Path,
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    bytes: int | None = None,
    kernel: str | None = None,
    global_size: Annotated[str | None, Parameter(name=["--global-size", "-n"])] = None,
    arg: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    batch: Path | None = None,
    task: Literal["load-balance", "device-mapping"] = "load-balance",
    pair: str | None = None,
    model: str | None = None,
    engine: Literal["numpy", "onnx"] = "numpy",
    building: Building = USUAL,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say which share of a kernel's work the CPU should take, and how sure that is.

    Where `apportion devices` found and measured two or more devices here, the answer is for them: what each
    is predicted to take, the best cut, and whether sharing is worth it. Else it is for a published pair.

    Args:
        sources: Files of OpenCL C (.cl), LLVM IR (.ll) or bitcode (.bc). With several, each gets one line.
        local_size: The work-items of a work-group, such as 64 or 16x16. Optional with --global-size.
        bytes: How many bytes the launch moves between the host and the device. Optional with --global-size:
            then it is what the kernel's arrays hold, as far as the code reaches.
        kernel: The kernel's name, if the source has several.
        global_size: All work-items, such as 4096 or 1024x1024. The answer then also gives the share as a
            number of work-items. Models that predict times need it; without it they estimate it from --bytes
            and print the estimate.
        arg: An argument of the kernel, such as `n=1024` or `x=float32[N]`, written as for `apportion run`.
            Models that predict times (this-machine, xeon-h200) use them. Arguments that you leave out are
            assumed from the code and printed.
        batch: A CSV file with one launch a line, instead of sources. It needs the columns source, local_size
            and bytes, and may have kernel and global_size.
        task: load-balance asks for a share of the work, device-mapping for the one faster device.
        pair: The devices to predict for: this-machine, cgo17-nvidia, cgo17-amd, or another pair that has a
            model.
        model: A model to ask instead of the pair's own, by its name or its folder. `apportion models` lists
            them.
        engine: What evaluates the model; the answers are the same. numpy starts at once. onnx (ONNX Runtime,
            the extra onnx) takes half a second longer to start and answers a launch four times faster, which
            pays off beyond a thousand launches.
        json: Print one line of JSON for each launch.
    """
    if batch is not None:
        if sources:
            raise InvalidSetting("--batch names the sources itself: give either it or sources, not both")
        rows = read_rows(batch)
        good = [row.query for row in rows if isinstance(row, MeasuredQuery)]
        answers = iter(predict_all(good, task=task, pair=pair, model=model, engine=engine) if good else [])
        asked = [
            (row, row) if isinstance(row, MalformedInput) else (row.query, next(answers)) for row in rows
        ]
        _show_all(asked, json)
        return
    sized = local_size is not None and bytes is not None
    if not sources or not (sized or (global_size is not None and len(sources) == 1)):
        raise InvalidSetting(
            "Give a source with --global-size, sources with --local-size and --bytes, or a file of launches "
            "as --batch"
        )
    group = None if local_size is None else size_of(local_size, "local_size")
    whole = None if global_size is None else size_of(global_size, "global_size")
    if len(sources) == 1:
        found = predict_share(
            building.source_or_path(sources[0]),
            local_size=group,
            bytes=bytes,
            kernel=kernel,
            global_size=whole,
            task=task,
            pair=pair,
            model=model,
            engine=engine,
            arguments=arg,
        )
        _show_one(found, json)
        return
    assert group is not None  # of several sources
    assert bytes is not None
    launches = [
        Query(building.source_or_path(source), group, bytes, kernel, whole, arg) for source in sources
    ]
    _show_all(
        list(
            zip(
                launches, predict_all(launches, task=task, pair=pair, model=model, engine=engine), strict=True
            )
        ),
        json,
    )


def _show_one(found: Prediction, json: bool) -> None:
    for warning in found.warnings:
        note(f"Warning: {warning}.")
    if json:
        print_json(found.as_json())
        return
    if found.assumed:
        note(f"Assumed: {', '.join(found.assumed)}.")
    low, high = found.interval
    machine = found.machine
    if machine is not None:
        print_machine(machine)
    first = "CPU" if machine is None else machine.devices[0].device
    rows = [
        (f"{first} share", f"{found.cpu_share:.0%}"),
        ("interval", f"{low:.0%} to {high:.0%}, with confidence {found.confidence:.0%}"),
        ("class", f"{found.share_class} %"),
        ("faster device", found.device),
        ("familiarity", f"{found.familiarity:.2f}"),
        ("model", found.model),
        ("time", ", ".join(f"{stage} {value:.1f} ms" for stage, value in found.milliseconds.items())),
    ]
    if found.chance is not None:
        rows.insert(4, ("device right", f"{found.chance:.0%} of held-out kernels with this answer"))
    if found.cpu_work_items is not None:
        rows.insert(1, (f"{first} work-items", f"{found.cpu_work_items:,}"))
    if found.nearest:
        rows.insert(-2, ("nearest known kernels", ", ".join(map(str, found.nearest))))
    if found.recovered is not None:
        rows.append(("recovered", ", ".join(found.recovered) or "names of a library"))
    print_table(("", "answer"), rows)


def _show_all(
    answers: Sequence[tuple[Query | MalformedInput, Prediction | ApportionError]], json: bool
) -> None:
    rows = []
    told = [set(answer.assumed) for _, answer in answers if isinstance(answer, Prediction)]
    if told and (shared := set.intersection(*told)) and not json:
        note(f"Assumed of all: {', '.join(sorted(shared))}.")
    for launch, answer in answers:
        said = {} if isinstance(launch, MalformedInput) else _launch(launch)
        name = said.get("source", "")
        if isinstance(answer, ApportionError):
            note(str(answer) if str(answer).startswith(name) else f"{name}: {answer}")
            if json:
                print_json({**said, "error": str(answer)})
            continue
        for warning in answer.warnings:
            note(f"Warning: {name}: {warning}.")
        if json:
            print_json({**said, **answer.as_json()})
        low, high = answer.interval
        rows.append(
            (name, said.get("bytes"), f"{answer.cpu_share:.0%}", f"{low:.0%} to {high:.0%}", answer.device,
             f"{answer.familiarity:.2f}")
        )  # fmt: skip
    if not json and rows:
        columns = ("source", "bytes", "CPU share", "interval", "faster device", "familiarity")
        print_table(columns, rows, right=columns[1:4])
    if len(rows) < len(answers):
        sys.exit(1)


def _launch(query: Query) -> dict[str, Any]:
    """What was asked, for a row of JSON."""
    return {
        "source": query.source.name if isinstance(query.source, Source) else str(query.source),
        "kernel": query.kernel,
        "local_size": size_in_words(query.local_size),
        "global_size": None if query.global_size is None else size_in_words(query.global_size),
        "bytes": query.bytes,
        **({"arguments": list(query.arguments)} if query.arguments else {}),
    }

"""`apportion schedule export`: predictions in the form that SkyPilot, Kueue or Flux takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note
from apportion.errors import InvalidSetting, UnknownName
from apportion.schedule.exports import FORMS, ExportOptions, orders_of, queue_labels
from apportion.schedule.slurm.estimates import read_class_predictions
from apportion.schedule.trace import parse_systems
from apportion.settings import replace_file

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]


def export(
    *,
    form: Annotated[str, Parameter(name="--for")],
    predictions: Path,
    out: Path | None = None,
    systems: Words = None,
    within: float = 2.0,
    called: Words = None,
    slot: Words = None,
    label: str = "apportion/system",
    namespace: str = "default",
    command: str | None = None,
    classes: Annotated[Words, Parameter(name="--class")] = None,
) -> None:
    """Write predictions in the form that SkyPilot, Kueue or Flux takes.

    For each class: the systems that suit it, the fastest first. All files are JSON, which is YAML as well.

    Args:
        form: What to write: skypilot (a task for each class), kueue (flavors and queues) or flux (a jobspec
            for each class).
        predictions: Predictions by class: a table with the columns class, predicted:NAME and perhaps
            sigma:NAME, or the lines that `apportion relative predict --json` prints.
        out: The folder to write into. Without it, each document is printed on one line.
        systems: The systems to use, as NAME=SLOTS; kueue makes its quotas of them.
        within: Leave out systems slower than this many times the fastest one of the class.
        called: What the cluster calls a system, as NAME=VALUE: an accelerator such as V100:1 (skypilot), the
            value of the nodes' label (kueue), or a property (flux).
        slot: What one slot holds: nvidia.com/gpu=1 cpu=8 memory=32Gi (kueue), or core=4 gpu=1 (flux).
        label: For kueue: the label of a node that says which system it is.
        namespace: For kueue: the namespace of the jobs.
        command: The command that a task runs; flux needs it.
        classes: Write only these classes.
    """
    if form not in FORMS:
        raise UnknownName("form", form, FORMS)
    slots = {one.name: one.slots for one in parse_systems(systems)} if systems else {}
    read = read_class_predictions(predictions)
    for name in classes or ():
        if name not in read:
            raise UnknownName("class", name, read)
    read = {name: said for name, said in read.items() if not classes or name in classes}
    orders = orders_of(read, systems=slots or None, within=within)
    left = sorted(set(read) - {order.name for order in orders})
    if left:
        note(f"Left out, because nothing usable is predicted: {', '.join(left)}")
    if not orders:
        raise InvalidSetting(f"{predictions} predicts nothing usable for any class")
    options = ExportOptions(_pairs("called", called), slots, _pairs("slot", slot), label, namespace, command)
    documents = FORMS[form](orders, options)
    for name, document in documents.items():
        if out is None:
            print(json.dumps(document))
        else:
            replace_file(out / name, json.dumps(document, indent=2) + "\n")
    if out is not None:
        note(f"Wrote {len(documents)} files into {out}" if len(documents) > 1 else
             f"Wrote {out / next(iter(documents))}")  # fmt: skip
    if form == "kueue":
        for name, queue in queue_labels(orders).items():
            note(f"Jobs of class {name} take the label kueue.x-k8s.io/queue-name: {queue}")
    if form == "flux" and any(order.longest is None for order in orders):
        note("Only ratios are predicted, so these jobs have no time limit (duration 0)")


def _pairs(option: str, words: list[str] | None) -> dict[str, str]:
    found = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            raise InvalidSetting(f"--{option} is written NAME=VALUE, not {word!r}")
        found[name] = value
    return found

"""`apportion predict`: which share of a kernel's work the CPU should take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from apportion.advise.predictor import predict as predict_share
from apportion.cli.show import note, print_json, print_table


def predict(
    source: Path,
    *,
    local_size: int,
    bytes: int,
    kernel: str | None = None,
    task: Literal["load-balance", "device-mapping"] = "load-balance",
    pair: str = "cgo17-nvidia",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say which share of a kernel's work the CPU should take, and how sure that is.

    Args:
        source: OpenCL C (.cl), LLVM IR (.ll) or bitcode (.bc).
        local_size: work-items in a work-group.
        bytes: moved between host and device for the launch.
        kernel: which one, where the source has several.
        task: a share of the work, or one device for all of it.
        pair: of devices: cgo17-nvidia or cgo17-amd.
        json: print JSON.
    """
    found = predict_share(source, local_size=local_size, bytes=bytes, kernel=kernel, task=task, pair=pair)
    for warning in found.warnings:
        note(f"Warning: {warning}.")
    if json:
        print_json(found.as_json())
        return
    low, high = found.interval
    rows = [
        ("CPU share", f"{found.cpu_share:.0%}"),
        ("interval", f"{low:.0%} to {high:.0%}, with confidence {found.confidence:.0%}"),
        ("class", f"{found.share_class} %"),
        ("faster device", found.device),
        ("familiarity", f"{found.familiarity:.2f}"),
        ("model", found.model),
        ("time", ", ".join(f"{stage} {value:.1f} ms" for stage, value in found.milliseconds.items())),
    ]
    print_table(("", "answer"), rows)

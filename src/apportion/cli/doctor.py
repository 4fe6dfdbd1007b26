"""`apportion doctor`: what is installed, what is found, what is missing and how to get it."""

from __future__ import annotations

from typing import Any

from apportion.advise.installation import examine
from apportion.cli.show import note, print_json, print_table, size_in_words


def doctor(*, json: bool = False) -> None:
    """Say what is installed, what is found, and what is missing.

    Args:
        json: Print one JSON object instead of tables.
    """
    findings = examine()
    if json:
        print_json(findings)
    else:
        _print_tables(findings)
    if not findings["healthy"]:
        raise SystemExit(1)


def _held(confinement: dict[str, Any]) -> str:
    if confinement["whole"]:
        return "run in a process that reaches nothing but its own files"
    return f"run in a process without limits on {', '.join(confinement['missing'])}"


def _print_tables(findings: dict[str, Any]) -> None:
    machine, cache = findings["machine"], findings["cache"]
    native = "loaded" if findings["apportion"]["native"] else findings["apportion"]["problem"]
    landlocked = f"version {machine['landlock']}" if machine["landlock"] else "not in this kernel"
    held = f"{cache['folder']} ({cache['files']} files, {size_in_words(cache['bytes'] or 0)})"
    print_table(
        ["", ""],
        [
            ["apportion", f"{findings['apportion']['version']}, native extension {native}"],
            ["Python", f"{findings['python']['version']} ({findings['python']['executable']})"],
            ["system", machine["system"]],
            [
                "machine",
                f"{machine['processors']} processors, "
                f"{size_in_words(machine['memory_bytes'] or 0)} of memory",
            ],
            ["Landlock", f"{landlocked} (keeps compilers away from other files)"],
            ["kernels", _held(findings["confinement"])],
            ["cache", cache["problem"] or held],
        ],
        title="This machine",
    )
    print_table(
        ["package", "version", "extra", "needed for"],
        [
            [one["package"], one["version"] or "not installed", one["extra"] or "", one["purpose"]]
            for one in findings["packages"]
        ],
        title="Packages",
    )
    print_table(
        ["compiler", "version", "command"],
        [[one.name, one.version or f"broken: {one.problem}", one.command] for one in findings["compilers"]],
        title="Compilers",
    )
    print_table(
        ["kind", "device", "platform", "version", "units", "memory"],
        [
            [
                *(one[key] for key in ("kind", "device", "platform", "version", "compute_units")),
                size_in_words(one["memory_bytes"]),
            ]
            for one in findings["opencl"]["devices"]
        ],
        title="OpenCL devices",
        right=["units", "memory"],
    )
    if findings["gpus"]:
        print_table(
            ["GPU", "driver", "memory"],
            [
                [one["name"], one["driver"], size_in_words(one["memory_bytes"] or 0)]
                for one in findings["gpus"]
            ],
            title="GPUs that nvidia-smi sees",
            right=["memory"],
        )
    if findings["missing"]:
        print_table(
            ["missing", "to get it"],
            [
                [f"{one.what}{' — essential' if one.essential else ''}", one.command]
                for one in findings["missing"]
            ],
            title="Missing",
        )
    note(
        "apportion works on this machine."
        if findings["healthy"]
        else "apportion does not work on this machine."
    )

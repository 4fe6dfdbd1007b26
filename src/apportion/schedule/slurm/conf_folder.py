"""Putting the reader of placements beside `slurm.conf`, and taking it away again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from apportion.errors import InvalidSetting, UnreadableFile
from apportion.settings import replace_file

FOLDER, SCRIPT, EARLIER, MANIFEST = "apportion", "job_submit.lua", "job_submit.before.lua", "installed.json"
UNIT = """\
[Unit]
Description=Placements of jobs by predicted times (apportion)
After=slurmctld.service

[Service]
User={user}
Environment=SLURM_CONF={conf}/slurm.conf
ExecStart={command} schedule slurm daemon --conf {conf}
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class InstallStep:
    """One thing that is done to the configuration's folder."""

    what: str
    "`write`, `keep` (an earlier script, under another name), `restore` or `remove`."

    path: Path
    content: str = ""


def plan_of_install(conf: Path, *, max_age: int = 300) -> list[InstallStep]:
    """What installing would do; doing it twice does no more than once.

    Args:
        conf: the folder of slurm.conf.
        max_age: seconds after which the daemon's last sign of life no longer counts, and nobody is placed.

    Raises:
        UnreadableFile: there is no slurm.conf.
    """
    conf = _folder(conf)
    if max_age < 1:
        raise InvalidSetting(f"max_age is 1 second or more, not {max_age}")
    ours = conf / FOLDER
    script = (files("apportion.schedule.slurm") / SCRIPT).read_text()
    script = script.replace("@FOLDER@", _quoted(str(ours))).replace("@MAX_AGE@", str(max_age))
    command = shutil.which("apportion", path=str(Path(sys.executable).parent)) or "apportion"
    unit = UNIT.format(conf=conf, command=command, user=_slurm_user(conf))
    steps = []
    there = conf / SCRIPT
    if there.exists() and not _is_ours(there):
        steps.append(InstallStep("keep", ours / EARLIER, there.read_text()))
    steps += [
        InstallStep("write", ours / "apportion-schedule.service", unit),
        InstallStep("write", there, script),
    ]
    return [step for step in steps if not (step.path.exists() and step.path.read_text() == step.content)]


def install(conf: Path, steps: Sequence[InstallStep]) -> None:
    """Do what was planned. The script comes last: it finds all that it reads."""
    ours = _folder(conf) / FOLDER
    (ours / "placement.d").mkdir(parents=True, exist_ok=True)
    for step in steps:
        _replace(step)
    written = {str(step.path): _digest(step.content) for step in steps if step.what == "write"}
    manifest = ours / MANIFEST
    known = json.loads(manifest.read_text()) if manifest.exists() else {}
    replace_file(manifest, json.dumps({**known, **written}, indent=1).encode())


def missing_settings(conf: Path) -> list[str]:
    """Lines that slurm.conf needs and does not have."""
    text = (_folder(conf) / "slurm.conf").read_text()
    plugins = re.search(r"^\s*JobSubmitPlugins\s*=\s*(\S+)", text, re.MULTILINE | re.IGNORECASE)
    there = plugins[1].split(",") if plugins else []
    return [] if "lua" in there else [f"JobSubmitPlugins={','.join([*there, 'lua'])}"]


def plan_of_undo(conf: Path) -> list[InstallStep]:
    """What taking it away would do.

    Raises:
        InvalidSetting: nothing is installed, or the script was changed by somebody since.
    """
    conf = _folder(conf)
    ours = conf / FOLDER
    manifest = ours / MANIFEST
    if not manifest.exists():
        raise InvalidSetting(f"Nothing of apportion is installed in {conf}")
    steps = []
    for name, digest in json.loads(manifest.read_text()).items():
        path = Path(name)
        if not path.exists():
            continue
        if _digest(path.read_text()) != digest:
            raise InvalidSetting(
                f"{path} was changed since it was installed. Save it elsewhere, then delete it"
            )
        steps.append(InstallStep("remove", path))
    if (ours / EARLIER).exists():
        steps = [step for step in steps if step.path != conf / SCRIPT]
        steps.append(InstallStep("restore", conf / SCRIPT, (ours / EARLIER).read_text()))
    steps += [InstallStep("remove", path) for path in sorted(ours.rglob("*")) if path.is_file()]
    return list({(step.what, step.path): step for step in steps}.values())


def undo(conf: Path, steps: Sequence[InstallStep]) -> None:
    """Do what was planned."""
    for step in steps:
        if step.what == "restore":
            _replace(step)
        else:
            step.path.unlink(missing_ok=True)
    ours = _folder(conf) / FOLDER
    for folder in sorted((path for path in ours.rglob("*") if path.is_dir()), reverse=True):
        folder.rmdir()
    if ours.exists():
        ours.rmdir()


def _replace(step: InstallStep) -> None:
    replace_file(step.path, step.content.encode())
    if step.path.name == SCRIPT:
        # slurmctld does not see a change within the second in which it last loaded the script.
        soon = time.time() + 2
        os.utime(step.path, (soon, soon))


def _folder(conf: Path) -> Path:
    conf = conf.resolve()
    if not (conf / "slurm.conf").exists():
        raise UnreadableFile(
            f"There is no slurm.conf in {conf}. Give its folder with --conf, such as /etc/slurm"
        )
    return conf


def _quoted(text: str) -> str:
    if re.search(r'["\\\n]', text):
        raise InvalidSetting(f"The folder {text} has a character that a Lua string cannot hold")
    return text


def _slurm_user(conf: Path) -> str:
    found = re.search(r"^\s*SlurmUser\s*=\s*([\w.-]+)", (conf / "slurm.conf").read_text(), re.MULTILINE)
    return found[1] if found else "root"


def _is_ours(script: Path) -> bool:
    return "apportion schedule slurm install" in script.read_text().partition("\n")[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

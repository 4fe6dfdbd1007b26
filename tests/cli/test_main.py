"""The command line as a whole: help, version, completion, and how things go wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apportion import __version__
from apportion.cli import COMMANDS, GROUPS, app, main
from apportion.errors import InvalidSetting


@pytest.fixture
def apportion(capsys):
    """Run a command line in this process: exit status, stdout, stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        return exit_.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def verb(monkeypatch):
    """Add a function as a verb of the command line for the time of a test."""
    added = []

    def add(name, function):
        app.command(function, name=name)
        monkeypatch.setitem(COMMANDS, name, ("", ""))
        added.append(name)

    yield add
    for name in added:
        del app[name]


def test_help_names_every_command_with_its_line(apportion):
    status, out, err = apportion("--help")
    assert (status, err) == (0, "")
    for name in COMMANDS:
        assert f" {name} " in out


def test_no_command_shows_the_help(apportion):
    status, out, _ = apportion()
    assert status == 0
    assert "Usage: apportion COMMAND" in out


def test_the_version_is_printed(apportion):
    assert apportion("--version") == (0, f"{__version__}\n", "")


def test_an_unknown_command_suggests_a_near_one(apportion):
    status, out, err = apportion("docter")
    assert (status, out) == (1, "")
    assert err.startswith(
        "apportion: No command called 'docter'. Did you mean 'doctor'? There are: analyze, "
    )
    assert err.count("\n") == 1


def test_an_unknown_option_suggests_a_near_one(apportion):
    status, out, err = apportion("doctor", "--jsn")
    assert (status, out) == (2, "")
    assert "--jsn" in err
    assert "Did you mean --json?" in err


def test_an_error_of_ours_is_one_line_and_exit_status_1(apportion, verb):
    def fail() -> None:
        raise InvalidSetting("workers must be at least 1, not 0")

    verb("fail", fail)
    assert apportion("fail") == (1, "", "apportion: workers must be at least 1, not 0\n")


def test_a_bug_is_a_traceback(verb):
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    verb("fail", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["fail"])


def test_an_interruption_is_one_line_and_exit_status_130():
    program = """
import time
from pathlib import Path
from apportion.cli import COMMANDS, GROUPS, app, main
def nap():
    print("napping", flush=True)
    time.sleep(60)
app.command(nap, name="nap")
COMMANDS["nap"] = ("", "")
main(["nap"])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "napping\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert err == "apportion: interrupted; what was finished is kept\n"


def test_a_reader_that_stops_reading_is_no_error():
    program = "from apportion.cli import main; main(['--help'])"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command(shell, tmp_path):
    script = app.generate_completion(shell=shell)
    for name in COMMANDS:
        assert name in script
    assert "json" in script  # bash and zsh write --json, fish writes -l json
    if shutil.which(shell):
        path = tmp_path / "completion"
        path.write_text(script)
        subprocess.run([shell, "-n", path], check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_where_it_is_asked_for(shell, tmp_path, monkeypatch, apportion):
    monkeypatch.setenv("HOME", str(tmp_path))
    target = tmp_path / "folder" / "completion"
    status, _, _ = apportion("--install-completion", "--shell", shell, "--output", str(target))
    assert status == 0
    assert "doctor" in target.read_text()


def test_the_help_groups_the_verbs(apportion):
    status, out, _ = apportion("--help")
    assert status == 0
    places = [out.index(f"─ {title} ─") for title in (*GROUPS, "Options")]
    assert places == sorted(places)
    assert "─ Commands ─" not in out
    assert max(map(len, out.splitlines())) <= 100
    for start, title in zip(places, GROUPS, strict=False):
        assert all(f"│ {name} " in out[start:] for name in GROUPS[title])


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from {module} import main
main({words})
"""


@pytest.mark.parametrize(
    ("missing", "module", "words", "extra"),
    [
        ("sklearn", "reproduction.__main__", ["predictor", "--help"], "trees"),
        ("sklearn", "reproduction.__main__", ["device-mapping"], "trees"),
        ("fastapi", "apportion.cli", ["serve", "--port", "0"], "serve"),
    ],
)
def test_a_command_whose_package_is_missing_says_in_one_line_what_brings_it(
    missing: str, module: str, words: list[str], extra: str
) -> None:
    program = WITHOUT.format(missing={missing}, module=module, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{'reproduction' if 'repro' in module else 'apportion'}: This command needs the package {missing!r}. "
        f"Install it with: pip install 'apportion[{extra}]'\n"
    )


def test_completion_is_installed_without_the_extras(tmp_path: Path) -> None:
    missing = {
        "sklearn",
        "torch",
        "scipy",
        "fastapi",
        "onnx",
        "ray",
        "jax",
        "xgboost",
        "pyopencl",
        "llvmlite",
    }
    program = WITHOUT.format(
        missing=missing, module="apportion.cli", words=["--install-completion", "--shell", "bash"]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("apportion*"))

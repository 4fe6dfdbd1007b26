"""What `import apportion` offers: lazily to Python, completely to type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import apportion
from apportion.coexecution.sharing import Together

PROGRAM = Path(__file__).parent / "consumer" / "program.py"


def imports_for_type_checkers() -> dict[str, str]:
    """Public name → `module:attribute`, as the imports under TYPE_CHECKING have it."""
    tree = ast.parse(Path(apportion.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert isinstance(block.test, ast.Name)
    assert block.test.id == "TYPE_CHECKING"
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_and_python_find_the_same_names_in_the_same_places():
    assert imports_for_type_checkers() == apportion._HOMES
    assert sorted(["__version__", *apportion._HOMES]) == apportion.__all__


@pytest.mark.parametrize("name", sorted(apportion._HOMES))
def test_a_public_name_says_what_it_is(name):
    value = getattr(apportion, name)
    assert value.__doc__
    if inspect.isfunction(value):
        hints = inspect.signature(value)
        assert hints.return_annotation is not inspect.Signature.empty
        assert all(parameter.annotation is not parameter.empty for parameter in hints.parameters.values())
        assert not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in hints.parameters.values())


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'apportion' has no attribute 'shar'"):
        apportion.shar  # noqa: B018


def test_share_takes_what_its_result_is_made_of():
    offered = inspect.signature(apportion.share).parameters
    wanted = inspect.signature(Together).parameters
    made_into_a_policy = {"objective", "watts"}
    assert [name for name in offered if name not in made_into_a_policy] == list(wanted)
    assert all(offered[name].kind == wanted[name].kind for name in wanted)


def mypy(program: Path) -> subprocess.CompletedProcess[str]:
    """As `make check` runs it, whose cache makes this quick."""
    command = [sys.executable, "-m", "mypy", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])


def test_a_program_that_uses_all_of_it_has_no_unknown_type():
    used = PROGRAM.read_text()
    assert used.startswith("# mypy: disallow-any-expr\n")
    assert {name for name in apportion.__all__ if f"apportion.{name}" not in used} == set()
    done = mypy(PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_type_checker_would_see_a_wrong_and_an_unknown_type(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "# mypy: disallow-any-expr\n"
        "import json\n"
        "import apportion\n"
        "print(apportion.predict('x.cl', local_size='64', bytes=1))\n"
        "print(json.loads('1'))\n"
    )
    done = mypy(program)
    assert done.returncode == 1
    assert 'Argument "local_size" to "predict" has incompatible type "str"' in done.stdout
    assert 'Expression has type "Any"' in done.stdout


@pytest.mark.xdist_group("opencl")
def test_that_program_runs():
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"apportion {apportion.__version__}\nCPU's share 0.")
    assert "33 nodes\n" in done.stdout
    assert done.stdout.endswith("Cannot read nowhere.cl: No such file or directory\n")

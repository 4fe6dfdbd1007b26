"""What docs/architecture.md promises about the code as a whole."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App

import apportion
from apportion.cli import COMMANDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "apportion"
MODULES = sorted(SOURCE.rglob("*.py"))
HEAVY = {"torch", "pyopencl", "ray", "polars", "llvmlite", "networkx", "sklearn", "onnx", "onnxruntime"}
WRITTEN = ("src", "native", "tests", "docs", "examples", "benchmarks", "experiments", "reproduction", "tools",
           "changelog.d")  # fmt: skip
TEXT = {".py", ".cpp", ".h", ".md", ".toml", ".txt", ".html", ".js", ".css", ".cl", ".c"}


def modules_after(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after running this code."""
    report = (
        "import json, sys; sys.__stderr__.write(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"
    )
    program = f"try:\n    {code}\nexcept SystemExit:\n    pass\n{report}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Each imported module of a file, wherever the import stands, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module


def places(found: Iterator[tuple[Path, int]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}" for path, line in found]


@pytest.mark.parametrize(
    "code",
    [
        "import apportion",
        "import apportion.jobs",
        "from apportion.cli import main; main(['--help'])",
        "from apportion.cli import main; main(['--version'])",
        "from apportion.cli import main; main(['doctor', '--help'])",
    ],
)
def test_looking_at_the_program_loads_nothing_heavy(code):
    loaded = modules_after(code)
    assert "apportion" in loaded
    assert loaded & HEAVY == set()


def test_the_test_for_heavy_packages_would_see_one():
    assert "polars" in modules_after("import polars")


def drawn_layers() -> list[list[str]]:
    """The line of docs/architecture.md that says who may import whom, lowest first."""
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    line = next(line for line in lines if line.count("◁") > 3)
    return [re.findall(r"\w+", layer) for layer in line.split("◁")]


def test_the_drawn_layers_are_in_the_contract_that_is_checked_and_in_its_order():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    # The contract may say more: names on one drawn layer can be layers of their own there.
    height = {
        name: level
        for level, layer in enumerate(reversed(layers))
        for name in re.findall(r"apportion\.(\w+)", layer)
    }
    drawn = drawn_layers()
    assert {name for layer in drawn for name in layer} <= set(height)
    for lower, upper in itertools.pairwise(drawn):
        assert max(height[name] for name in lower) < min(height[name] for name in upper), (lower, upper)


def test_every_drawn_layer_exists():
    for name in itertools.chain.from_iterable(drawn_layers()):
        assert (SOURCE / name / "__init__.py").exists() or (SOURCE / f"{name}.py").exists(), name


def test_every_entry_of_every_registry_can_be_loaded():
    # In another process: some entries load torch and OpenCL, which other tests must not find loaded.
    program = """
import importlib, json, pkgutil, apportion
from apportion.errors import MissingPackage
from apportion.registry import Registry

tables, problems = [], []
for package in pkgutil.walk_packages(apportion.__path__, "apportion."):
    if not package.ispkg:
        continue
    for name, value in list(vars(importlib.import_module(package.name)).items()):
        if isinstance(value, Registry):
            tables.append(f"{package.name}.{name}")
            for entry in value:
                try:
                    value.load(entry)
                except MissingPackage:
                    pass
                except Exception as error:
                    problems.append(f"{package.name}.{name}[{entry!r}]: {error!r}")
print(json.dumps([tables, problems]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tables, problems = json.loads(done.stdout.splitlines()[-1])
    assert "apportion.jobs.runners" in tables
    assert "apportion.program.frontends" in tables
    assert problems == []


def functions_of(served):
    """The functions of a verb: itself, or those of an App of verbs."""
    if not isinstance(served, App):
        yield served
        return
    for verb in served:
        if not verb.startswith("-"):
            found = served[verb]
            yield from functions_of(found.default_command or found)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_function_that_explains_itself(name):
    target, summary = COMMANDS[name]
    module, _, attribute = target.partition(":")
    served = getattr(import_module(module), attribute)
    functions = list(functions_of(served))
    assert all(inspect.isfunction(function) and function.__doc__ for function in functions)
    assert summary.endswith(".")


@pytest.mark.parametrize("name", [name for name in apportion.__all__ if name != "__version__"])
def test_every_public_name_can_be_had(name):
    assert name in dir(apportion)
    assert getattr(apportion, name) is not None


MODULES_NAMED_TWICE = {"backend"}
"""Modules of two packages that are called alike. Only to be made shorter: the test fails when an entry is no
longer needed. Left out are `base`, which holds a package's contract, and the verbs in cli/."""


def test_no_class_name_is_given_twice():
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


LARGE_CLASSES = {"Session", "Worker"}
"Classes of more than thirty methods. Only to be made shorter."


def test_no_class_has_more_than_thirty_methods_but_those_that_are_listed():
    large = {
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body) > 30
    }
    assert large == LARGE_CLASSES, "take a class apart along its concepts, or out of LARGE_CLASSES"


CONTRACTS = {
    "runtime:backends": "runtime.backend:Backend",
    "coexecution.policies:policies": "coexecution.policies.base:Policy",
    "learn:predictors": "learn.base:Predictor",
    "learn:learners": "learn.learner:Learner",
    "jobs:runners": "jobs.base:Runner",
}
"""A registry, and the abstract class of what it holds."""


@pytest.mark.parametrize("registry", CONTRACTS)
def test_every_contract_has_two_implementations_or_more(registry: str):
    def named(place: str):
        module, _, attribute = place.partition(":")
        return getattr(import_module(f"apportion.{module}"), attribute)

    assert inspect.isabstract(named(CONTRACTS[registry]))
    assert len(list(named(registry))) >= 2


def test_no_module_name_is_given_twice_but_those_that_are_listed():
    homes = defaultdict(list)
    for path in MODULES:
        if path.stem not in ("__init__", "base") and path.parent != SOURCE / "cli":
            homes[path.stem].append(str(path.relative_to(SOURCE)))
    twice = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in MODULES_NAMED_TWICE} == {}
    assert twice.keys() == MODULES_NAMED_TWICE, "take out of MODULES_NAMED_TWICE what is called so once only"


def test_torch_is_for_learning_and_for_those_who_measure_it():
    allowed = {SOURCE / "program" / "exchange.py", SOURCE / "measure" / "clocks.py"}
    found = (
        (path, line)
        for path in MODULES
        if path not in allowed and SOURCE / "learn" not in path.parents
        for line, module in imports_of(path)
        if module.split(".")[0] in ("torch", "torch_geometric", "torchvision")
    )
    assert places(found) == []


def test_the_product_does_not_know_its_reproductions():
    found = (
        (path, line)
        for path in MODULES
        for line, module in imports_of(path)
        if module.split(".")[0] in ("reproduction", "benchmarks", "tests")
    )
    assert places(found) == []


def used_by(path: Path, code: ast.AST) -> Iterator[str]:
    """Each module of ours that a file's code imports, or names in a string, as registries do."""
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]
        elif isinstance(node, ast.JoinedStr):  # f"{_HERE}.bayes:BayesPolicy": a module beside this one
            ending = node.values[-1]
            if isinstance(ending, ast.Constant) and str(ending.value).startswith("."):
                package = path.parent.relative_to(SOURCE.parent)
                yield ".".join(package.parts) + str(ending.value).partition(":")[0]


def test_every_module_of_the_wheel_is_reached_by_what_users_call():
    homes = {}
    for path in MODULES:
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        homes[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    waiting = ["apportion.__main__", "apportion.client"]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if "results" not in page.parts and "decisions" not in page.parts:
            waiting += re.findall(r"\bapportion(?:\.\w+)+", page.read_text())
    reached = set()
    while waiting:
        name = waiting.pop()
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        if name in homes and name not in reached:
            reached.add(name)
            waiting += used_by(homes[name], ast.parse(homes[name].read_text()))
    assert sorted(homes.keys() - reached) == [], "move what only reproductions and tests use out of src"


def test_pickle_goes_between_processes_and_never_into_files():
    between_processes = {
        SOURCE / name for name in ("jobs/values.py", "jobs/local.py", "runtime/opencl/pipe.py")
    }
    found = (
        (path, line)
        for path in MODULES
        if path not in between_processes
        for line, module in imports_of(path)
        if module.split(".")[0]
        in ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib")
    )
    assert places(found) == []
    for path in between_processes:
        assert not re.search(r"pickle\.(load|dump)\(|\bopen\(", path.read_text()), path
    # Only a worker restores whatever it is sent: its function and items, by the process that started it.
    parent = (SOURCE / "jobs/local.py").read_text().partition("def _work(")[0]
    for text in (
        parent,
        *((SOURCE / name).read_text() for name in ("jobs/values.py", "runtime/opencl/pipe.py")),
    ):
        assert "pickle.loads" not in text


def test_no_array_or_model_is_read_with_pickle_allowed():
    found = (
        (path, number)
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"allow_pickle\s*=\s*True|weights_only\s*=\s*False", line)
    )
    assert places(found) == []


def test_nothing_is_left_for_later():
    marks = re.compile("|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", "NotImplemented" + "Error"]))
    found = (
        (path, number)
        for folder in WRITTEN
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in TEXT and path.is_file()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if marks.search(line)
    )
    assert places(found) == []


MAKERS_WORDS = (
    r"foretold|foretell\w*|enquir\w+|givingway|bytes (?:together|apart)|stolen|deducing|second seed|[Tt]he seed['’]s"
    r"|campaign's suite|int turns\b"
)
"""Words that only those who wrote this know; the field says predicted, query, thread priority, coalesced and strided
bytes, steal time, default arguments, the paper, trip count."""


def test_the_words_are_those_of_the_field():
    kernels_as_they_were_drawn = SOURCE / "suite" / "kernelforms"  # a seed gives the same text as ever
    words = re.compile(MAKERS_WORDS, re.IGNORECASE)
    found = (
        (path, number)
        for folder in (
            "src",
            "native",
            "docs",
            "examples",
            "benchmarks",
            "experiments",
            "reproduction",
            "tools",
            "web/src",
        )
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in TEXT | {".ts", ".jinja", ".json"} and path.is_file() and path != Path(__file__)
        if kernels_as_they_were_drawn not in path.parents and path != SOURCE / "suite" / "generator.py"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if words.search(line)
    )
    assert places(found) == []


def test_the_files_that_need_an_optional_package_are_where_its_comment_says():
    named = re.findall(r"[\w/]+\.py", " ".join(re.findall(r"#(.*)", (ROOT / "pyproject.toml").read_text())))
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists() and not (SOURCE / name).exists()] == []


def test_every_link_in_the_documentation_leads_somewhere():
    lost = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", page.read_text()):
            # The reference is made from the code when the site is built.
            if not (page.parent / target).exists() and not target.startswith("reference/"):
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert lost == []


def test_the_start_page_leads_to_every_page_of_results():
    start = (ROOT / "docs" / "index.md").read_text()
    pages = sorted((ROOT / "docs" / "results").glob("*.md"))
    assert [path.name for path in pages if f"](results/{path.name})" not in start] == []

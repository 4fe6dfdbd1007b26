"""What clients send: one frozen form per question, which checks itself and names what is wrong with it."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from apportion.advise.queries import Query, Size
from apportion.coexecution.objective import TIME, objective_of
from apportion.errors import InvalidSetting
from apportion.learn.ranking.ridge import TuningPlan
from apportion.program.buildfile import BuildOptions, parsed, words_of
from apportion.program.source import Source

LARGEST_SOURCE = 512 << 10
"Characters of one source."
LARGEST_BUILD = 8192
"Characters of the options that one source is compiled with."
LARGEST_RANGE = 1 << 48
"Work-items of one launch."
MOST_LAUNCHES = 1024
"Launches of one request."
_NAME = re.compile(r"[\w .+()-]{1,120}")
_PLACE = re.compile(r"(?:[\w+()-][\w .+()-]{0,120}/){0,6}[\w+()-][\w .+()-]{0,120}")
_SYSTEM = re.compile(r"[A-Za-z][\w.-]{0,40}=\d{1,4}(:[\w.-]{1,40})?")
_FILE = re.compile(r"\.[A-Za-z_]|[/\\~]|\bfile\b")
_STRICT: Any = {"extra": "forbid", "allow_inf_nan": False, "use_attribute_docstrings": True}

Sizes = int | list[int]
"Work-items in one dimension, or in each."


@dataclass(frozen=True)
class SourceForm:
    """A program as text."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    text: str
    language: Literal["opencl", "cuda", "hip", "c", "c++", "llvm"] = "opencl"
    name: str = "kernel.cl"
    "What messages call it; no path."
    defines: list[str] = field(default_factory=list)
    "Macros: NAME or NAME=VALUE."
    build_options: str = ""
    "As clBuildProgram takes them: -D N=5 -cl-std=CL1.2 -cl-fast-relaxed-math; no folders and no files."

    def __post_init__(self) -> None:
        if len(self.text) > LARGEST_SOURCE:
            raise InvalidSetting(f"A source may have {LARGEST_SOURCE:,} characters, not {len(self.text):,}")
        if "\0" in self.text:
            raise InvalidSetting("A source must be text, without NUL characters")
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting("A source's name has 1 to 120 letters, digits, spaces and .+-()_, no path")
        if len(self.defines) > 100:
            raise InvalidSetting(f"A source may have 100 macros, not {len(self.defines)}")
        if len(self.build_options) > LARGEST_BUILD:
            raise InvalidSetting(
                f"Build options may have {LARGEST_BUILD:,} characters, not {len(self.build_options):,}"
            )
        if self.build.include_paths or self.build.headers:
            raise InvalidSetting("The service reads no files: put headers into the text, not into -I")

    @cached_property
    def build(self) -> BuildOptions:
        """How it is compiled."""
        return BuildOptions(defines=tuple(self.defines)).over(parsed(words_of(self.build_options)))

    @cached_property
    def source(self) -> Source:
        """The same, as the rest of the package takes it."""
        text = self.text.replace("\r\n", "\n")
        return Source(
            text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), self.language, self.name,
            self.build,
        )  # fmt: skip


def size_of_form(sizes: Sizes, name: str) -> Size:
    """A size as `Query` takes it.

    Raises:
        InvalidSetting: it has no dimension or more than three, or is too large.
    """
    each = sizes if isinstance(sizes, list) else [sizes]
    if not 1 <= len(each) <= 3:
        raise InvalidSetting(f"{name} has one to three dimensions, not {len(each)}")
    if min(each) < 1 or math.prod(each) > LARGEST_RANGE:
        raise InvalidSetting(f"{name} must be 1 to 2^48 work-items in all")
    return sizes if isinstance(sizes, int) else tuple(sizes)


@dataclass(frozen=True)
class LaunchForm:
    """A kernel and how it is launched."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    local_size: Sizes
    "Work-items of a work-group."
    bytes: int
    "Moved between host and device."
    kernel: str | None = None
    "Which one, where the source has several."
    global_size: Sizes | None = None
    "Work-items in all."
    arguments: list[str] = field(default_factory=list)
    "Such as n=4096 or x=float32[N], for models that predict times; what is not given is assumed, and said."

    def __post_init__(self) -> None:
        _check_arguments(self.arguments)
        self.query  # noqa: B018  (it checks itself)

    @cached_property
    def query(self) -> Query:
        """The same, as models are asked."""
        _check_name(self.kernel)
        whole = None if self.global_size is None else size_of_form(self.global_size, "global_size")
        return Query(
            self.source.source, size_of_form(self.local_size, "local_size"), self.bytes, self.kernel, whole,
            tuple(self.arguments),
        )  # fmt: skip


@dataclass(frozen=True)
class PredictForm(LaunchForm):
    """`apportion predict`: which share of a launch the CPU should take."""

    task: Literal["load-balance", "device-mapping"] = "load-balance"
    pair: str | None = "cgo17-nvidia"
    "`this-machine` stands for the devices of the service; null is what the command takes without --pair."
    engine: Literal["numpy", "onnx"] = "numpy"


@dataclass(frozen=True)
class PredictAllForm:
    """`apportion predict --batch`: many launches at once."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    launches: list[LaunchForm]
    task: Literal["load-balance", "device-mapping"] = "load-balance"
    pair: str = "cgo17-nvidia"

    def __post_init__(self) -> None:
        if not 1 <= len(self.launches) <= MOST_LAUNCHES:
            raise InvalidSetting(f"A request has 1 to {MOST_LAUNCHES} launches, not {len(self.launches)}")


@dataclass(frozen=True)
class ExplainForm(LaunchForm):
    """`apportion explain`: what moved the answer."""

    pair: str = "cgo17-nvidia"


@dataclass(frozen=True)
class InspectForm:
    """`apportion inspect`: what a launch will take on each device, and which lines make it so."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    global_size: Sizes = 1 << 20
    local_size: Sizes | None = None
    kernel: str | None = None
    arguments: list[str] = field(default_factory=list)
    "Such as n=4096 or x=float32[N]; what is not given is assumed, and said."
    ir: bool = True
    "Whether the answer holds the LLVM IR."

    def __post_init__(self) -> None:
        _check_name(self.kernel)
        size_of_form(self.global_size, "global_size")
        if self.local_size is not None:
            size_of_form(self.local_size, "local_size")
        _check_arguments(self.arguments)


@dataclass(frozen=True)
class GraphForm:
    """`apportion graph`: the program graph of a source."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    function: str | None = None
    variant: Literal["reference", "corrected", "ddf", "development"] = "reference"
    type_nodes: bool = False
    variable_per: Literal["use", "definition"] = "use"
    opaque_pointers: bool = False
    optimization: Literal["0", "1", "2", "3"] = "2"

    def __post_init__(self) -> None:
        _check_name(self.function)


@dataclass(frozen=True)
class PictureForm:
    """The program graph of a kernel as SVG, with the source line of each node."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    function: str | None = None
    limit: int = 600
    "How many nodes are shown at most."

    def __post_init__(self) -> None:
        _check_name(self.function)
        if not 1 <= self.limit <= 2000:
            raise InvalidSetting(f"limit must be 1 to 2000 nodes, not {self.limit}")


@dataclass(frozen=True)
class AnalyzeForm:
    """`apportion analyze`: a data-flow analysis from some roots of a program graph."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    analysis: Literal["reachability", "dominance", "datadep", "liveness", "subexpressions"]
    root: int | None = None
    roots: str | None = None
    seed: int = 0
    mode: Literal["exact", "reference"] = "exact"
    function: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.function)
        if self.roots is not None and len(self.roots) > 10_000:
            raise InvalidSetting("roots must be at most 10,000 characters")
        if self.root is not None and not 0 <= self.root < 1 << 31:
            raise InvalidSetting(f"root must be the number of a node, not {self.root}")
        if not 0 <= self.seed < 1 << 63:
            raise InvalidSetting("seed must be 0 to 2^63 - 1")


@dataclass(frozen=True)
class RunForm:
    """`apportion run`: a kernel on the devices of this machine, checked, beside each device alone."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    source: SourceForm
    global_size: Sizes
    local_size: Sizes | None = None
    kernel: str | None = None
    arguments: list[str] = field(default_factory=list)
    "Such as x=float32[N], n=3 or t=local:1024; no files."
    split: str = "auto"
    objective: str = "time"
    "What the split is chosen for: time, energy, edp, or a limit such as 250W."
    watts: dict[str, str] = field(default_factory=dict)
    "Device → what it draws while it works, or `120:30` with what it draws idle; else it is measured."
    devices: list[str] = field(default_factory=list)
    repeat: int = 3
    seed: int = 0
    trust: bool = False
    seconds: float = 10.0
    "How long one launch may take."
    cuts: bool = True
    "Whether the curve of cuts is measured too."
    name: str = ""
    "What the user calls this run."

    def __post_init__(self) -> None:
        _check_name(self.kernel)
        whole = size_of_form(self.global_size, "global_size")
        if math.prod(whole if isinstance(whole, tuple) else (whole,)) > 1 << 32:
            raise InvalidSetting("global_size must be at most 2^32 work-items for a run")
        if self.local_size is not None:
            size_of_form(self.local_size, "local_size")
        _check_arguments(self.arguments)
        if not 1 <= self.repeat <= 20:
            raise InvalidSetting(f"repeat must be 1 to 20 runs, not {self.repeat}")
        if not 0 <= self.seed < 1 << 63:
            raise InvalidSetting("seed must be 0 to 2^63 - 1")
        if not 0 < self.seconds <= 600:
            raise InvalidSetting(f"seconds must be more than 0 and at most 600, not {self.seconds:g}")
        if objective_of(self.objective) != TIME and self.split != "auto":
            raise InvalidSetting("The objective chooses the split itself: leave split out")
        if len(self.watts) > 16 or any(len(name) + len(one) > 80 for name, one in self.watts.items()):
            raise InvalidSetting('watts are those of up to 16 devices, such as {"cpu": "120:30"}')
        if len(self.devices) > 16 or len(self.split) > 40 or len(self.objective) > 40 or len(self.name) > 120:
            raise InvalidSetting("devices, split, objective or name is too long")


@dataclass(frozen=True)
class MeasureForm:
    """`apportion measure`: kernels at several sizes on every device."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    sources: list[SourceForm]
    sizes: list[int] = field(default_factory=list)
    local_sizes: list[int] = field(default_factory=lambda: [64, 256])
    devices: list[str] = field(default_factory=list)
    seconds: float = 1.0
    "How long one point may be repeated until its interval is narrow."
    budget: float = 120.0
    "Seconds after which no new point is begun."
    name: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.sources) <= 50:
            raise InvalidSetting(f"Measure 1 to 50 sources at once, not {len(self.sources)}")
        for sizes in (self.sizes, self.local_sizes):
            if len(sizes) > 20 or not all(1 <= size <= 1 << 28 for size in sizes):
                raise InvalidSetting("sizes and local_sizes are up to 20 numbers from 1 to 2^28")
        if not self.local_sizes:
            raise InvalidSetting("local_sizes must have a number")
        if not 0 < self.seconds <= 20 or not 0 < self.budget <= 3600:
            raise InvalidSetting("seconds must be up to 20 and budget up to 3600, both more than 0")
        if len(self.name) > 120:
            raise InvalidSetting("A name has at most 120 characters")


@dataclass(frozen=True)
class ProfileForm:
    """What is known of one run of a program: counters, and its times on systems where it ran."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    counters: dict[str, float | None]
    name: str = "run"
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RelativeForm:
    """`apportion relative predict`: in which order systems would run what was profiled."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    profiles: list[ProfileForm]
    systems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    target: str = "centred"

    def __post_init__(self) -> None:
        if not 1 <= len(self.profiles) <= 200:
            raise InvalidSetting(f"A request has 1 to 200 profiles, not {len(self.profiles)}")


@dataclass(frozen=True)
class ScheduleForm:
    """`apportion schedule simulate`: jobs under several policies, drawn where no trace of them is sent."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    systems: list[str]
    "NAME=SLOTS or NAME=SLOTS:KIND."
    policies: list[str] = field(default_factory=lambda: ["eft"])
    format: Literal["synthetic", "table", "gavel", "swf", "sacct", "measured"] = "synthetic"
    "Of the trace."
    trace: str | None = None
    "The text of the file of jobs; a table as CSV."
    throughputs: str | None = None
    "Gavel: the text of the table of steps per second."
    times: str | None = None
    "SWF, sacct and measured: a table as CSV with `class` and `seconds:NAME` for each system."
    jobs: int = 200
    load: float = 0.85
    "Offered work over what the slots can do; 0 has all jobs arrive at once."
    sigma: float | None = None
    "How wrong the policies are about times: sigma of log2; None gives them the truth."
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.systems) <= 16 or not all(_SYSTEM.fullmatch(word) for word in self.systems):
            raise InvalidSetting("systems are 1 to 16 words NAME=SLOTS, such as v100=8")
        if not 1 <= len(self.policies) <= 8 or any(len(name) > 60 for name in self.policies):
            raise InvalidSetting(f"A request has 1 to 8 policies, not {len(self.policies)}")
        if not 1 <= self.jobs <= 2000:
            raise InvalidSetting(f"jobs must be 1 to 2000, not {self.jobs}")
        if not 0 <= self.load <= 10 or not 0 <= (self.sigma or 0.0) <= 5:
            raise InvalidSetting("load lies between 0 and 10, sigma between 0 and 5")
        if not 0 <= self.seed < 1 << 31:
            raise InvalidSetting("seed must be 0 to 2^31 - 1")
        if (self.format in ("table", "gavel", "swf", "sacct")) != (self.trace is not None):
            raise InvalidSetting(
                f"The format {self.format} is one with a trace; synthetic and measured have none"
            )


@dataclass(frozen=True)
class FileForm:
    """A file that a request is about."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    name: str
    "With its folders, counted from where the request's other files are."
    data: str
    "In base64."

    def __post_init__(self) -> None:
        if not _PLACE.fullmatch(self.name) or ".." in self.name.split("/"):
            raise InvalidSetting("A file's name has letters, digits, spaces and .+-()_, and up to 6 folders")
        self.content  # noqa: B018  (it checks itself)

    @cached_property
    def content(self) -> bytes:
        """What the file holds."""
        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError as error:
            raise InvalidSetting(f"The data of {self.name} is not base64: {error}") from None


def write_files(files: Sequence[FileForm], folder: Path) -> None:
    """The files of a request, in a folder."""
    for file in files:
        place = folder / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)


@dataclass(frozen=True)
class RankForm:
    """`apportion rank score`: how well a baseline ranks recorded configurations of tensor programs."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    files: list[FileForm]
    "Of the store that `apportion rank pack` wrote."
    baseline: Literal["random", "ridge"] = "ridge"
    measured: int = 100
    "How many configurations of each graph the ridge regression measures."
    side: str = "valid"
    collection: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _check_files(self.files)
        if not 2 <= self.measured <= 10_000 or not 0 <= self.seed < 1 << 31:
            raise InvalidSetting("measured must be 2 to 10,000, and seed 0 to 2^31 - 1")


@dataclass(frozen=True)
class TrainForm:
    """`apportion train`: an experiment and its files, or a share model of what was measured here."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    experiment: str = ""
    "The text of the experiment's file, in TOML. Paths in it are names of `files`."
    files: list[FileForm] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    """Ids of measuring jobs, whose points are then in `measured/` with their `sources`. Without an experiment
    the share of the first of two devices is learned from them."""
    name: str = ""
    "What the model is called."

    def __post_init__(self) -> None:
        _check_files(self.files)
        if not self.experiment.strip() and not self.jobs:
            raise InvalidSetting("Send an experiment, or the ids of measuring jobs to learn from")
        if len(self.jobs) > 50 or any(not re.fullmatch(r"[0-9a-f]{16}", id) for id in self.jobs):
            raise InvalidSetting("jobs are up to 50 ids of jobs")
        if self.name and not _NAME.fullmatch(self.name):
            raise InvalidSetting("A model's name has 1 to 120 letters, digits, spaces and .+-()_, no path")


@dataclass(frozen=True)
class TuneForm:
    """`apportion tune --recorded`: what the search would have found in a table of measured configurations."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    table: str
    """The text of the table: CSV, or the JSON of Kernel Tuner and of autotuning benchmarks. In base64, with
    a name that ends in .npz, a layout file."""
    budget: int
    "How many configurations are measured."
    seeds: int = 1
    name: str = "table.csv"
    random_share: float = TuningPlan.random_share
    "Of a layout file: the part of the budget that is drawn by chance."
    check_share: float = TuningPlan.check_share
    "Of a layout file: the part kept for those predicted to be the fastest."

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting("A table's name has 1 to 120 letters, digits, spaces and .+-()_, no path")
        if not 1 <= self.budget <= 200 or not 1 <= self.seeds <= 10:
            raise InvalidSetting("budget must be 1 to 200 measurements, and seeds 1 to 10")


@dataclass(frozen=True)
class ImportForm:
    """`apportion counters import`: what another tool counted, as text."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    text: str
    format: Literal["auto", "perf", "perf-script", "papi", "caliper", "ncu", "csv"] = "auto"
    name: str = "counters.txt"
    program: str = ""
    system: str = ""
    size: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith((".ncu-rep", ".xml", ".db")):
            raise InvalidSetting("A file's name has 1 to 120 letters, digits, spaces and .+-()_, and is text")
        if max(len(self.program), len(self.system), len(self.size)) > 200:
            raise InvalidSetting("program, system and size have at most 200 characters")


@dataclass(frozen=True)
class NameForm:
    """What a job is called from now on."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    name: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.strip()) <= 120:
            raise InvalidSetting("A name has 1 to 120 characters")


def _check_files(files: Sequence[FileForm]) -> None:
    if len(files) > 1000 or len({file.name for file in files}) < len(files):
        raise InvalidSetting("A request has up to 1,000 files, each with a name of its own")


def _check_name(kernel: str | None) -> None:
    if kernel is not None and not 1 <= len(kernel) <= 500:
        raise InvalidSetting("A kernel's name has 1 to 500 characters")


def _check_arguments(arguments: list[str]) -> None:
    """Refuse what would read a file of this machine."""
    if len(arguments) > 64 or any(len(argument) > 200 for argument in arguments):
        raise InvalidSetting("A kernel takes up to 64 arguments of 200 characters each")
    for argument in arguments:
        if _FILE.search(argument.partition("=")[2]):
            raise InvalidSetting(
                f"The service reads no files: write {argument[:60]!r} as a value or float32[N]"
            )


FORMS: Mapping[str, type] = {
    "predict": PredictForm, "predict-all": PredictAllForm, "explain": ExplainForm, "inspect": InspectForm,
    "graph": GraphForm, "picture": PictureForm, "analyze": AnalyzeForm, "relative": RelativeForm,
    "schedule": ScheduleForm, "tune": TuneForm, "import": ImportForm,
    "run": RunForm, "measure": MeasureForm, "rank": RankForm, "train": TrainForm,
}  # fmt: skip
"Verb → the form of its questions."

"""What the service answers: the types that its OpenAPI description tells and that a test holds answers to.

Answers are made where the command line makes them and are sent as they are; nothing here is built on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from apportion.advise.installation import Compiler, Missing
from apportion.learn.ranking.rankings import RankedGraph
from apportion.runtime.base import DeviceInfo
from apportion.schedule.quality import ScheduleSummary
from apportion.schedule.repeat import RepeatedRun

_EXACT: Any = {"extra": "forbid", "use_attribute_docstrings": True}
State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True)
class ProblemAnswer:
    """What went wrong."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    kind: str
    "The class of `apportion.errors`; Refused where the service does not take the request."
    message: str
    line: int | None = None
    "Of the source, for an error of the compiler."
    column: int | None = None
    file: str = ""
    diagnostics: str = ""
    "Everything that the compiler said."


@dataclass(frozen=True)
class ErrorAnswer:
    """What every answer holds whose status is 400 or more."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    error: ProblemAnswer


@dataclass(frozen=True)
class KernelDistance:
    """A kernel that a model learned from."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    kernel: str
    distance: float
    "Differences of features, in standard deviations."


@dataclass(frozen=True)
class DeviceTimeAnswer:
    """What a launch is predicted to take on one device, in milliseconds."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    device: str
    name: str
    milliseconds: float
    interval: tuple[float, float]
    "It holds the truth four times in five."
    fixed: float
    rate: float
    "fixed + rate × share of the range."
    bottleneck: str | None
    parts: dict[str, float]
    "What bounds it → the time that this alone would take."


@dataclass(frozen=True)
class CutAnswer:
    """The best division of a launch between devices."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    shares: dict[str, float]
    milliseconds: float
    alone: str
    "The device that is expected to be fastest alone."
    gain: float
    "How many times faster than that device."
    worth_sharing: bool
    share_interval: tuple[float, float] | None
    chance: float | None
    "How likely the cut is faster than the best device alone."
    curve: list[tuple[float, float, float, float]] = field(default_factory=list)
    "Share of the first of two devices, milliseconds, and their interval; not in the answer of predict."


@dataclass(frozen=True)
class MachineAnswer:
    """Some devices that could share a launch."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    name: str
    origin: str
    devices: list[DeviceTimeAnswer]
    cut: CutAnswer


@dataclass(frozen=True)
class PredictAnswer:
    """What `apportion predict --json` prints."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    cpu_share: float
    interval: tuple[float, float]
    confidence: float
    "How likely the interval holds the best share."
    class_: Annotated[int, Field(alias="class")]
    "Of 0, 25, 50, 75 and 100 percent."
    device: str
    familiarity: float
    "1 for a kernel that the model learned from, 0 for one farther than any."
    model: str
    milliseconds: dict[str, float]
    "Stage → how long it took."
    warnings: list[str]
    cpu_work_items: int | None = None
    recovered: list[str] | None = None
    assumed: list[str] = field(default_factory=list)
    nearest: list[KernelDistance] = field(default_factory=list)
    chance: float | None = None
    machine: MachineAnswer | None = None


@dataclass(frozen=True)
class ArgumentAnswer:
    """What an argument is taken to be."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    name: str
    is_: Annotated[str, Field(alias="is")]
    assumed: bool


@dataclass(frozen=True)
class LineAnswer:
    """What one line of the source adds to a launch."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    line: int
    "0 for what the compiler ascribes to no line."
    times: float
    "How often a work-item comes by."
    counts: dict[str, float]
    milliseconds: dict[str, float]
    "Machine/device → what the line takes there, if nothing overlaps."


@dataclass(frozen=True)
class InspectAnswer:
    """What `apportion inspect --json` prints."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    kernel: str
    kernels: list[str]
    global_size: list[int]
    local_size: list[int]
    arguments: list[ArgumentAnswer]
    bytes: int
    machines: list[MachineAnswer]
    lines: list[LineAnswer]
    warnings: list[str]
    measuring: bool
    "Whether the devices of this machine are being measured, so that a later answer holds more."
    ir: str = ""


@dataclass(frozen=True)
class InstructionAnswer:
    """What one instruction moved."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    node: int
    function: str
    text: str
    added: float
    line: int | None


@dataclass(frozen=True)
class MovingLine:
    """What the instructions of one line moved."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    line: int
    text: str
    added: float


@dataclass(frozen=True)
class ExplainAnswer:
    """What `apportion explain --json` prints."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    kernel: str
    pair: str
    cpu_share: float
    base: float
    inputs: dict[str, float]
    nearest_launches: dict[str, float]
    whole: dict[str, float]
    absent: dict[str, float]
    instructions: list[InstructionAnswer]
    lines: list[MovingLine]
    warnings: list[str]


@dataclass(frozen=True)
class GraphAnswer:
    """What `apportion graph --json` prints: lists of the reference's JSON."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    nodes: list[list[Any]]
    edges: list[list[int]]
    functions: list[list[Any]]
    module: list[list[Any]]


@dataclass(frozen=True)
class PictureAnswer:
    """A drawn program graph."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    svg: str
    nodes: int
    edges: int
    shown: int
    lines: dict[str, int]
    "Node → line of the source."


@dataclass(frozen=True)
class AnalyzeAnswer:
    """What `apportion analyze --json` prints."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    analysis: str
    eligible: list[int]
    runs: list[list[Any]]
    "Of each root: root, steps, how many nodes are marked, and which; or root and why there is no answer."


@dataclass(frozen=True)
class TuneAnswer:
    """What `apportion tune --recorded --json` prints of one seed of a table."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    seed: int
    best: dict[str, Any]
    seconds: float
    over_best: float
    by_chance: float


@dataclass(frozen=True)
class LayoutTuneAnswer:
    """The same of a layout file."""

    __pydantic_config__: ClassVar[Any] = {"extra": "allow"}

    best: int
    runtime_ns: float
    slowdown: float
    measured: int


@dataclass(frozen=True)
class ProfileAnswer:
    """What is known of one run of a program."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    name: str
    counters: dict[str, float | None]
    seconds: dict[str, float]


@dataclass(frozen=True)
class ImportAnswer:
    """What `apportion counters import --json` prints, and the runs as profiles."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    rows: int
    runs: int
    counters: int
    systems: int
    profiles: list[ProfileAnswer]


@dataclass(frozen=True)
class RankAnswer:
    """What `apportion rank score --json` prints."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    collections: dict[str, Any]
    competition_total: float | None
    graphs: list[RankedGraph]


@dataclass(frozen=True)
class JobBar:
    """A job of a drawn schedule, in seconds."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    system: str
    job: str
    begin: float
    end: float
    slots: int
    "How many slots of the system it takes."


@dataclass(frozen=True)
class _Drawn:
    __pydantic_config__: ClassVar[Any] = _EXACT

    repeat: RepeatedRun
    schedule: list[JobBar]
    queue: tuple[list[float], list[float]]
    "Times, and how many jobs wait from then on."


@dataclass(frozen=True)
class ScheduleAnswer(_Drawn, ScheduleSummary):
    """What `apportion schedule simulate --json` prints of one policy, with its jobs and its queue."""

    __pydantic_config__: ClassVar[Any] = _EXACT


@dataclass(frozen=True)
class RelativeAnswer:
    """What `apportion relative predict --json` prints of one run."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    run: str
    target: str
    abstains: bool
    vector: dict[str, float] | None
    order: list[str] | None
    sigma: dict[str, float]
    distance: float
    familiarity: float
    measured: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class HealthAnswer:
    """Whether the service answers, and what it allows."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    version: str
    runs_code: bool
    sandboxed: bool | None
    waiting: int
    "Questions that wait for a worker."


@dataclass(frozen=True)
class DoctorAnswer:
    """What `apportion doctor --json` prints, without paths."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    apportion: dict[str, Any]
    python: dict[str, str]
    machine: dict[str, Any]
    packages: list[dict[str, str | None]]
    compilers: list[Compiler]
    opencl: dict[str, Any]
    confinement: dict[str, Any]
    gpus: list[dict[str, Any]]
    cache: dict[str, Any]
    missing: list[Missing]
    healthy: bool


@dataclass(frozen=True)
class ModelAnswer:
    """What `apportion models list --json` prints of one model."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    name: str
    question: str
    predictor: str
    made_by: str
    data: str
    checksum: str
    licence: str
    size: int
    about: str
    score: str
    folder: str
    misses: list[str]
    "Each measure by which it is worse than the trivial answer in its score."
    default: bool


@dataclass(frozen=True)
class StarterAnswer:
    """A kernel to start from."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    name: str
    title: str
    language: str
    global_size: list[int]
    arguments: list[str]
    text: str


@dataclass(frozen=True)
class MeasuredKernel:
    """A kernel that was run or measured here, for a roofline."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    job: str
    name: str
    device: str
    seconds: float
    operations: float
    "Multiply-adds of the launch."
    bytes: float
    "From and to memory, past the caches."


@dataclass(frozen=True)
class JobSummary:
    """A job without its request and its answer."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    id: str
    verb: str
    name: str
    state: State
    created: float
    "Seconds since 1970, as `started` and `ended`."
    started: float | None
    ended: float | None
    error: ProblemAnswer | None


@dataclass(frozen=True)
class BoundsAnswer:
    """In how many work-groups every access was looked at, or why in none."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    groups: int
    of: int
    failure: str


@dataclass(frozen=True)
class EnergyAnswer:
    """Joules of a launch by what its devices draw."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    joules: float
    alone: dict[str, float]
    "Device → joules of the launch there alone."
    watts: dict[str, float]
    "Device → what it draws while it works; `idle` → what the machine draws anyway."
    origin: dict[str, str]
    "Device → `measured` or `given`."


@dataclass(frozen=True)
class RunAnswer:
    """What `apportion run --json` prints, in milliseconds, with the launch, its work and metered joules."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    policy: str
    split: dict[str, float]
    milliseconds: float
    alone: dict[str, float]
    verified: bool
    merge: dict[str, str]
    conflicts: int
    reason: str
    kernel: str
    repeats: list[float]
    work_items: int
    speedup: float | None
    speedup_interval: tuple[float, float] | None
    efficiency: float | None
    curve: list[tuple[float, float]]
    "Measured cuts: share of the first device, milliseconds."
    timeline: list[dict[str, str | float]]
    merge_milliseconds: float
    forecast: dict[str, Any] | None
    devices: dict[str, str]
    launch: dict[str, Any]
    work: dict[str, float]
    assumed: list[str]
    printed: str
    checked: BoundsAnswer | None
    "Null where the code proves that every access stays inside its array, or where it is trusted."
    confinement: dict[str, Any] | None
    energy: EnergyAnswer | None
    "Null where the split was chosen for time alone."
    metered: dict[str, Any]
    "Joules of a launch by the machine's meters, with all else that ran; or the reason why there are none."


@dataclass(frozen=True)
class MeasureAnswer:
    """Points as `apportion measure --json` prints them, each with the work of its launch."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    points: list[dict[str, Any]]
    failures: int


@dataclass(frozen=True)
class TrainAnswer:
    """What training found: the scores are the learner's own."""

    __pydantic_config__: ClassVar[Any] = {"extra": "allow"}

    model: str
    learner: str
    question: str


@dataclass(frozen=True)
class JobAnswer(JobSummary):
    """A job with its request and its answer."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    request: dict[str, Any]
    answer: RunAnswer | MeasureAnswer | TrainAnswer | None


@dataclass(frozen=True)
class RemovedAnswer:
    """The id of a job that is forgotten."""

    __pydantic_config__: ClassVar[Any] = _EXACT

    removed: str


ANSWERS: Mapping[str, Any] = {
    "POST /api/predict": PredictAnswer, "POST /api/predict/batch": list[PredictAnswer | ErrorAnswer],
    "POST /api/inspect": InspectAnswer, "POST /api/explain": ExplainAnswer, "POST /api/graph": GraphAnswer,
    "POST /api/picture": PictureAnswer, "POST /api/analyze": AnalyzeAnswer,
    "POST /api/tune": list[TuneAnswer | LayoutTuneAnswer], "POST /api/counters/import": ImportAnswer,
    "POST /api/rank": RankAnswer, "POST /api/schedule": list[ScheduleAnswer],
    "POST /api/relative": list[RelativeAnswer], "GET /api/health": HealthAnswer,
    "GET /api/devices": list[DeviceInfo], "GET /api/doctor": DoctorAnswer,
    "GET /api/models": list[ModelAnswer], "GET /api/policies": list[str],
    "GET /api/examples": list[StarterAnswer], "GET /api/examples/profiles": list[ProfileAnswer],
    "GET /api/measured": list[MeasuredKernel], "POST /api/run": JobSummary, "POST /api/measure": JobSummary,
    "POST /api/train": JobSummary, "GET /api/jobs": list[JobSummary], "GET /api/jobs/{id}": JobAnswer,
    "PATCH /api/jobs/{id}": JobSummary, "DELETE /api/jobs/{id}": RemovedAnswer,
    "POST /api/jobs/{id}/cancel": JobSummary,
}  # fmt: skip
"Method and address → the type of what it answers; the events of a job are no JSON."

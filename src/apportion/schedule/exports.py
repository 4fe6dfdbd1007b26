"""Predictions in the form that SkyPilot, Kueue and Flux take: for each class, the systems in their order."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from apportion.errors import InvalidSetting
from apportion.schedule.slurm.estimates import MOST_SIGMA, ClassPrediction

Document = dict[str, Any]

USUAL_SIGMA = 1.0
"Of log2, of a prediction that comes without one."
QUANTILE = 0.98
"Of the predicted time in the slowest system that is kept: the limit of a Flux job."
COHORT = "apportion"
"The cohort of Kueue whose queues share the slots of all systems."

_SKYPILOT_KEYS = ("accelerators", "instance_type", "infra", "cpus")
_ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+(\.[0-9]+)?)?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_AMOUNT = re.compile(r"([1-9][0-9]*)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_NOT_IN_A_PROPERTY = set("!&'\"^`|()")
_FLAVORS = 64  # the most that Kueue takes in one group


@dataclass(frozen=True)
class ClassOrder:
    """The systems that suit a class of jobs, the fastest first."""

    name: str
    systems: tuple[str, ...]
    seconds: Mapping[str, float]
    "Empty where only ratios are predicted."

    longest: float | None
    "Seconds that 98 of 100 jobs stay under in the slowest of the systems, as predicted."


@dataclass(frozen=True)
class ExportOptions:
    """What a cluster calls things, and how much one slot holds."""

    called: Mapping[str, str] = field(default_factory=dict)
    "System → its accelerator (SkyPilot), node label (Kueue) or property (Flux). Otherwise its own name."

    slots: Mapping[str, int] = field(default_factory=dict)
    "System → how many slots; Kueue makes quotas of them."

    slot: Mapping[str, str] = field(default_factory=dict)
    "Resource → how much of it one slot holds."

    label: str = "apportion/system"
    "The label of Kubernetes nodes that tells the systems apart."

    namespace: str = "default"
    command: str | None = None

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            raise InvalidSetting(
                f"A label of nodes is written NAME or DOMAIN/NAME, such as nvidia.com/gpu.product, "
                f"not {self.label!r}"
            )
        if self.namespace != dns_name(self.namespace):
            raise InvalidSetting(
                f"A namespace of Kubernetes has small letters, digits and -, not {self.namespace!r}"
            )


def orders_of(
    predictions: Mapping[str, ClassPrediction], *, systems: Iterable[str] | None = None, within: float = 2.0
) -> list[ClassOrder]:
    """The order of systems of each class of which something usable is predicted.

    Args:
        systems: those that count; all that are predicted unless given.
        within: systems slower than this times the fastest are left out.
    """
    if not within >= 1:
        raise InvalidSetting(f"within is a factor of 1 or more, not {within}")
    allowed = None if systems is None else set(systems)
    found = []
    for name, said in sorted(predictions.items()):
        logs = {system: math.log2(seconds) for system, seconds in said.seconds.items()} or said.relative
        usable = {
            system: log
            for system, log in logs.items()
            if (allowed is None or system in allowed) and said.sigma.get(system, USUAL_SIGMA) <= MOST_SIGMA
        }
        if not usable:
            continue
        most = min(usable.values()) + math.log2(within)
        kept = sorted((log, system) for system, log in usable.items() if log <= most)
        order = tuple(system for _, system in kept)
        seconds = {system: said.seconds[system] for system in order if system in said.seconds}
        z = NormalDist().inv_cdf(QUANTILE)
        limits = [time * 2 ** (z * said.sigma.get(system, USUAL_SIGMA)) for system, time in seconds.items()]
        found.append(ClassOrder(name, order, seconds, max(limits, default=None)))
    return found


def dns_name(text: str) -> str:
    """A text as a name of Kubernetes: small letters, digits and single -, 63 characters at most."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-")


def skypilot(orders: list[ClassOrder], options: ExportOptions) -> dict[str, Document]:
    """A task for each class, by file name: its candidates under `resources: ordered:`."""
    if options.slot:
        raise InvalidSetting("SkyPilot takes no --slot. Say how many with --called NAME=ACCELERATOR:COUNT")
    documents: dict[str, Document] = {}
    for order, name in _named(orders):
        task: Document = {
            "name": name,
            "resources": {"ordered": [_candidate(system, options) for system in order.systems]},
        }
        if options.command is not None:
            task["run"] = options.command
        documents[f"{name}.yaml"] = task
    return documents


def _candidate(system: str, options: ExportOptions) -> dict[str, str]:
    key, equals, value = options.called.get(system, system).partition("=")
    if not equals:
        key, value = "accelerators", key
    if key not in _SKYPILOT_KEYS:
        raise InvalidSetting(
            f"SkyPilot has no {key!r} to choose {system} by. Write --called {system}=ACCELERATOR:COUNT, or "
            f"{system}=KEY=VALUE with KEY one of {', '.join(_SKYPILOT_KEYS)}"
        )
    if not value or (key == "accelerators" and not _ACCELERATOR.fullmatch(value)):
        raise InvalidSetting(f"SkyPilot's accelerators are written NAME or NAME:COUNT, not {value!r}. "
                             f"Say what {system} is with --called {system}=NAME:COUNT")  # fmt: skip
    return {key: value}


def kueue(orders: list[ClassOrder], options: ExportOptions) -> dict[str, Document]:
    """One list of objects: a flavor for each system, and a queue for each order of systems.

    The slots belong to one queue that nobody can submit to; all others borrow from it, so that an order of
    flavors costs no quota of its own.
    """
    if not orders:
        return {}
    systems = sorted({system for order in orders for system in order.systems})
    flavors = dict(zip(systems, _distinct(systems), strict=True))
    slot = dict(options.slot) or {"nvidia.com/gpu": "1"}
    for system in systems:
        if system not in options.slots:
            raise InvalidSetting(f"Kueue needs to know how many slots {system} has: --systems {system}=SLOTS")
    if len(systems) > _FLAVORS:
        raise InvalidSetting(
            f"Kueue takes {_FLAVORS} flavors in a queue, and {len(systems)} systems are wanted"
        )
    chosen = {order.systems: _queue(order) for order in orders}
    if len(set(chosen.values())) < len(chosen):
        raise InvalidSetting("The orders of systems are too long to name queues after. Make --within smaller")
    quotas = {system: {name: _times(options.slots[system], amount) for name, amount in slot.items()}
              for system in systems}  # fmt: skip
    none = dict.fromkeys(slot, "0")
    items = [_flavor(flavors[system], system, options) for system in systems]
    items.append(_cluster_queue(COHORT, [(flavors[one], quotas[one]) for one in systems], None))
    for order, queue in sorted(chosen.items(), key=lambda item: item[1]):
        classes = [one.name for one in orders if one.systems == order]
        items.append(_cluster_queue(queue, [(flavors[one], none) for one in order], {}))
        items.append({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
            "metadata": {"name": queue, "namespace": options.namespace,
                         "annotations": {"apportion/classes": ", ".join(classes)}},
            "spec": {"clusterQueue": queue},
        })  # fmt: skip
    return {"kueue.json": {"apiVersion": "v1", "kind": "List", "items": items}}


def queue_labels(orders: list[ClassOrder]) -> dict[str, str]:
    """Class → the value of the label `kueue.x-k8s.io/queue-name` of its Jobs."""
    return {order.name: _queue(order) for order in orders}


def _queue(order: ClassOrder) -> str:
    return dns_name(f"{COHORT} {' '.join(order.systems)}")


def _flavor(name: str, system: str, options: ExportOptions) -> Document:
    value = options.called.get(system, system)
    if not _LABEL_VALUE.fullmatch(value):
        raise InvalidSetting(
            f"A label of a Kubernetes node has letters, digits, - _ and . (63 at most), not {value!r}. "
            f"Say how nodes of {system} are labelled with --called {system}=VALUE"
        )
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor",
        "metadata": {"name": name}, "spec": {"nodeLabels": {options.label: value}},
    }  # fmt: skip


def _cluster_queue(
    name: str, flavors: list[tuple[str, dict[str, str]]], selector: Document | None
) -> Document:
    # By default (flavorFungibility) a queue borrows before it tries the next flavor, and what that is called
    # has changed between versions of Kueue: it is not written.
    spec: Document = {
        "cohort": COHORT,
        "resourceGroups": [{
            "coveredResources": list(flavors[0][1]),
            "flavors": [
                {"name": flavor,
                 "resources": [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]}
                for flavor, quota in flavors
            ],
        }],
    }  # fmt: skip
    if selector is not None:
        spec["namespaceSelector"] = selector
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
        "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def _times(slots: int, amount: str) -> str:
    found = _AMOUNT.fullmatch(amount)
    if found is None:
        raise InvalidSetting(
            f"A slot holds a whole number, perhaps with a unit, as 1 or 32Gi: {amount!r} is none"
        )
    return f"{slots * int(found[1])}{found[2] or ''}"


def flux(orders: list[ClassOrder], options: ExportOptions) -> dict[str, Document]:
    """A jobspec (version 1) for each class, by file name, to run on nodes with one of its properties."""
    command = _words(options.command or "")
    if not command:
        raise InvalidSetting("A jobspec of Flux needs what it runs: --command 'PROGRAM ARGUMENTS'")
    slot = {"core": "1"} | dict(options.slot)
    for name, amount in slot.items():
        if name not in ("core", "gpu") or not re.fullmatch("[1-9][0-9]*", amount):
            raise InvalidSetting(
                f"A slot of Flux has core=COUNT and perhaps gpu=COUNT, 1 or more, not {name}={amount}"
            )
    documents: dict[str, Document] = {}
    for order, name in _named(orders):
        either = [{"properties": [_property(system, options)]} for system in order.systems]
        documents[f"{name}.json"] = {
            "version": 1,
            "resources": [{
                "type": "slot", "count": 1, "label": "task",
                "with": [{"type": kind, "count": int(slot[kind])} for kind in sorted(slot)],
            }],
            "tasks": [{"command": command, "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {
                "system": {
                    "duration": 0 if order.longest is None else math.ceil(order.longest),
                    "constraints": either[0] if len(either) == 1 else {"or": either},
                },
                "user": {"apportion": {"class": order.name, "systems": list(order.systems)}},
            },
        }  # fmt: skip
    return documents


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InvalidSetting(f"--command {command!r} cannot be split into words: {error}") from None


def _property(system: str, options: ExportOptions) -> str:
    name = options.called.get(system, system)
    if not name or set(name) & _NOT_IN_A_PROPERTY or any(letter.isspace() for letter in name):
        raise InvalidSetting(f"A property of Flux has no space and none of !&'\"^`|(), unlike {name!r}. "
                             f"Say it with --called {system}=PROPERTY")  # fmt: skip
    return name


def _named(orders: list[ClassOrder]) -> list[tuple[ClassOrder, str]]:
    return list(zip(orders, _distinct([order.name for order in orders]), strict=True))


def _distinct(texts: list[str]) -> list[str]:
    """The texts as names that files, tasks and objects can have."""
    names = [dns_name(text) for text in texts]
    for at, name in enumerate(names):
        if not name:
            raise InvalidSetting(f"{texts[at]!r} has no letter a-z and no digit to make a name of. Rename it")
        if name in names[:at]:
            other = texts[names.index(name)]
            raise InvalidSetting(f"{other!r} and {texts[at]!r} would both be called {name}. Rename one")
    return names


Form = Callable[[list[ClassOrder], ExportOptions], dict[str, Document]]

FORMS: dict[str, Form] = {"skypilot": skypilot, "kueue": kueue, "flux": flux}
"What a table of predictions can be exported for, by name."

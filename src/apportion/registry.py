"""Names that become code when asked for.

A `Registry` maps a name to `"module:attribute"`. Listing loads nothing, using one entry loads one module,
and a package that is missing is reported with the extra that brings it. Outsiders add entries through the
entry point group `apportion.<kind>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from apportion.errors import InvalidSetting, MissingPackage, UnknownName


class Registry:
    """A table of names for one kind of thing.

    Args:
        kind: what the entries are, in the singular (`"frontend"`); used in messages and entry points.
        entries: name → `"module:attribute"`.
        extras: name → the extra that installs what the entry needs.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], extras: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._extras = dict(extras or {})

    def names(self) -> list[str]:
        """All names, ours first, then those that installed packages add."""
        return [*self._entries, *(name for name in self._added() if name not in self._entries)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._added()  # ours cost no look at installed packages

    def load(self, name: str) -> Any:
        """The thing called `name`; its module is imported now, and no other.

        Raises:
            UnknownName: no such entry; the message lists those there are.
            MissingPackage: the entry's module needs a package that is not installed.
        """
        target = self._entries.get(name) or self._added().get(name)
        if target is None:
            raise UnknownName(self.kind, name, self.names())
        module_name, _, attribute = target.partition(":")
        if not attribute:
            raise InvalidSetting(f"The {self.kind} {name!r} is written {target!r}, not 'module:attribute'")
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            missing = error.name or "?"
            if missing.split(".")[0] == "apportion":
                raise
            raise MissingPackage(
                missing, self._extras.get(name, "all"), f"The {self.kind} {name!r}"
            ) from error
        return getattr(module, attribute)

    def _added(self) -> dict[str, str]:
        from importlib.metadata import entry_points  # here: it takes 30 ms of every start, and ours need none

        return {entry.name: entry.value for entry in entry_points(group=f"apportion.{self.kind}")}

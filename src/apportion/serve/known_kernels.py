"""Predictions at once: rows of kernels are kept, and launches that wait are answered together."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.advise.describe import KernelRow
from apportion.advise.machine_answers import THIS_MACHINE
from apportion.advise.prediction import Prediction
from apportion.advise.predictor import answers_of, is_timed, shares_model
from apportion.advise.queries import Query
from apportion.errors import ApportionError
from apportion.serve.forms import LaunchForm, PredictAllForm, PredictForm, SourceForm
from apportion.serve.pool import Pool

_MOST_ROWS = 8192
"Kernels that are kept; one takes about 4 kB."
_ROW_AT_HAND = {"compile": 0.0, "graph": 0.0, "features": 0.0}


@dataclass(frozen=True)
class _Waiting:
    """A launch that waits for its answer."""

    query: Query
    row: KernelRow
    future: asyncio.Future[Prediction]


class KnownKernels:
    """Answers `predict` without asking a worker again about a kernel that was seen before."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._rows: OrderedDict[bytes, KernelRow] = OrderedDict()
        self._asked: dict[bytes, asyncio.Task[KernelRow]] = {}
        self._waiting: dict[tuple[str, str, str], list[_Waiting]] = defaultdict(list)

    async def predict(self, form: PredictForm) -> dict[str, Any]:
        """What `apportion predict --json` says, with its warnings."""
        if form.pair is None or form.pair == THIS_MACHINE or is_timed(form.pair, form.engine):
            answer: dict[str, Any] = await self._pool.ask("predict", form)
            return answer
        found = await self._prediction(form, form.task, form.pair, form.engine)
        return found.as_json() | {"warnings": list(found.warnings)}

    async def predict_all(self, form: PredictAllForm) -> list[dict[str, Any] | ApportionError]:
        """The answer for each launch, or what kept it from one."""
        if is_timed(form.pair, "numpy"):
            rows: list[dict[str, Any] | ApportionError] = [
                await self.predict(
                    PredictForm(
                        one.source,
                        one.local_size,
                        one.bytes,
                        one.kernel,
                        one.global_size,
                        one.arguments,
                        form.task,
                        form.pair,
                    )
                )
                for one in form.launches
            ]
            return rows
        found = await asyncio.gather(
            *(self._prediction(one, form.task, form.pair, "numpy") for one in form.launches),
            return_exceptions=True,
        )
        answers: list[dict[str, Any] | ApportionError] = []
        for one in found:
            if isinstance(one, ApportionError):
                answers.append(one)
            elif isinstance(one, BaseException):
                raise one
            else:
                answers.append(one.as_json() | {"warnings": list(one.warnings)})
        return answers

    async def _prediction(self, form: LaunchForm, task: str, pair: str, engine: str) -> Prediction:
        model = shares_model(task, pair)
        row = await self._row(form.source, form.kernel, model.vectorized)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Prediction] = loop.create_future()
        waiting = self._waiting[task, pair, engine]
        if not waiting:  # whoever else comes in this turn of the loop is answered together with this one
            loop.call_soon(self._answer, task, pair, engine)
        waiting.append(_Waiting(form.query, row, future))
        return await future

    def _answer(self, task: str, pair: str, engine: str) -> None:
        batch = self._waiting.pop((task, pair, engine), [])
        try:
            found = answers_of(
                [one.query for one in batch], [one.row for one in batch], task=task, pair=pair, engine=engine
            )
        except Exception as error:
            found = [error if isinstance(error, ApportionError) else _not_ours(error)] * len(batch)
        for one, answer in zip(batch, found, strict=True):
            if one.future.done():
                continue
            if isinstance(answer, BaseException):
                one.future.set_exception(answer)
            else:
                one.future.set_result(answer)

    async def _row(self, source: SourceForm, kernel: str | None, vectorized: bool) -> KernelRow:
        key = _key(source, kernel, vectorized)
        if (known := self._rows.get(key)) is not None:
            self._rows.move_to_end(key)
            return known
        if key not in self._asked:
            task = asyncio.create_task(self._described(key, source, kernel, vectorized))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(self._asked[key])

    async def _described(
        self, key: bytes, source: SourceForm, kernel: str | None, vectorized: bool
    ) -> KernelRow:
        said = await self._pool.ask("row", {"source": source, "kernel": kernel, "vectorized": vectorized})
        row = KernelRow(
            name=said["name"], code=np.array(said["code"]), warnings=tuple(said["warnings"]),
            declared=None if said["declared"] is None else tuple(said["declared"]),
            milliseconds=said["milliseconds"],
        )  # fmt: skip
        self._rows[key] = KernelRow(
            name=row.name, code=row.code, warnings=row.warnings, declared=row.declared,
            milliseconds=_ROW_AT_HAND,
        )  # fmt: skip
        while len(self._rows) > _MOST_ROWS:
            self._rows.popitem(last=False)
        return row


def _key(source: SourceForm, kernel: str | None, vectorized: bool) -> bytes:
    digest = hashlib.sha256()
    parts: Sequence[str] = (
        source.language,
        source.name,
        source.text,
        kernel or "",
        str(vectorized),
        source.build_options,
        *source.defines,
    )
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _not_ours(error: Exception) -> ApportionError:
    raise error

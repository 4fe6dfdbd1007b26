"""The service as an ASGI application: which address answers which verb."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from apportion.errors import ApportionError, InvalidSetting, UnknownName
from apportion.serve.answers import ANSWERS, ErrorAnswer
from apportion.serve.failures import BUG, Refused, failure_of, without_paths
from apportion.serve.forms import (
    AnalyzeForm,
    ExplainForm,
    GraphForm,
    ImportForm,
    InspectForm,
    MeasureForm,
    NameForm,
    PictureForm,
    PredictAllForm,
    PredictForm,
    RankForm,
    RelativeForm,
    RunForm,
    ScheduleForm,
    TrainForm,
    TuneForm,
)
from apportion.serve.guard import Application, Guard, json_bytes
from apportion.serve.history import STATES, History
from apportion.serve.jobs import JobBoard
from apportion.serve.known_kernels import KnownKernels
from apportion.serve.pool import Pool
from apportion.serve.predict_route import PredictRoute
from apportion.serve.service_settings import ServiceSettings
from apportion.serve.starters import starters

PAGE = Path(__file__).parent / "page"
_SUMMARY = (
    "Which device should do how much of this work, and how sure are we? "
    'Every error is {"error": {"kind": …, "message": …}}.'
)
_FAILURES: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "model": ErrorAnswer}
    for code, text in (
        (400, "The request cannot be read"), (401, "The token is missing or wrong"),
        (403, "Switched off, or asked by a page of another site"),
        (404, "There is nothing at this address"), (408, "The request took too long to arrive"),
        (413, "The request is too large"), (415, "The request is not JSON"),
        (421, "The Host header names another service"), (422, "Something in the request is wrong"),
        (429, "Too many requests"), (500, "A fault of the service"),
        (501, "An optional package is not installed"),
        (503, "There is no device"), (504, "It took too long"),
    )
}  # fmt: skip
_DOCTOR_SECONDS = 60.0
"It starts drivers and compilers in processes of their own, which takes long beside other work."


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


def _gives(what: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a method of an address answers, for the description."""
    return {status: {"model": ANSWERS[what]}}


class Service:
    """What the routes share: workers, known kernels, and jobs."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.pool = Pool(
            settings.workers, folder=settings.folder, seconds=settings.answer_seconds,
            waiting=settings.waiting, memory_bytes=settings.memory_bytes,
        )  # fmt: skip
        # Drivers map more memory than they use: their own limit is on what they use.
        self.devices_pool = Pool(1, folder=settings.folder, seconds=settings.job_seconds, waiting=8)
        self.known = KnownKernels(self.pool)
        self.history = History(settings.folder / "history.sqlite")
        self.jobs = JobBoard(
            self.history, self.devices_pool, waiting=settings.waiting_jobs,
            waiting_of_client=settings.waiting_jobs_of_client, seconds=settings.job_seconds,
            kept=settings.kept_jobs,
        )  # fmt: skip
        self._devices: asyncio.Task[Any] | None = None
        self._known: list[dict[str, Any]] = []

    async def start(self) -> None:
        """Start the workers and go on with the jobs that wait."""
        await self.pool.warm()
        # What is there now stays: looking through it again for garbage would hold up every answer.
        gc.collect()
        gc.freeze()
        self.ask_for_devices()
        self.jobs.start(runs_code=self.settings.runs_code)

    async def close(self) -> None:
        """End every process."""
        await self.jobs.close()
        await self.pool.close()
        await self.devices_pool.close()
        self.history.close()

    def ask_for_devices(self) -> None:
        """Find out which devices there are, and measure those that never were; jobs wait meanwhile."""
        self._devices = asyncio.create_task(self._found_devices())

    async def _found_devices(self) -> Any:
        self._known = await self.devices_pool.ask("devices", {"speeds": "kept"})
        if any(one["calibration"] is None for one in self._known):
            self._known = await self.devices_pool.ask("devices", {})
        return self._known

    async def devices(self) -> Any:
        """The devices of this machine, with their speeds."""
        if self._devices is None or (self._devices.done() and self._devices.exception() is not None):
            self.ask_for_devices()
        assert self._devices is not None
        return await asyncio.shield(self._devices)

    async def inspect(self, form: InspectForm) -> Any:
        """What a launch will take on the devices of this machine, as far as they are known by now, and on
        those of the shipped models."""
        answer = await self.pool.ask("inspect", {"form": asdict(form), "devices": self._known})
        measuring = self._devices is not None and not self._devices.done()
        return answer | {"measuring": measuring}

    def may_run(self) -> None:
        """Raise where running code is switched off."""
        if not self.settings.runs_code:
            raise Refused(403, "This service runs no code: it was started with --no-run")


class Json(JSONResponse):
    """An answer; what is no Unicode in it, as in half a letter of a source, becomes `?`."""

    def render(self, content: Any) -> bytes:
        """The bytes that are sent."""
        return json_bytes(content)


def application(settings: ServiceSettings) -> Application:
    """The whole service, behind its guard."""
    service = Service(settings)
    return Guard(PredictRoute(_routes(service), service.known.predict), settings)


def openapi() -> dict[str, Any]:
    """The description of every address, as `/api/openapi.json` gives it."""
    return _routes(None).openapi()  # type: ignore[arg-type]


def _routes(service: Service) -> FastAPI:
    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    app = FastAPI(
        title="apportion", version=metadata.version("apportion"), description=_SUMMARY, lifespan=living,
        docs_url=None, redoc_url=None, openapi_url="/api/openapi.json", responses=_FAILURES,
    )  # fmt: skip
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(ApportionError, _failed)
    app.add_exception_handler(Exception, _bug)
    _add_questions(app, service)
    _add_machine(app, service)
    _add_jobs(app, service)
    _add_page(app)
    return app


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/api/predict",
        summary="Which share of a launch the CPU should take",
        responses=_gives("POST /api/predict"),
    )
    async def predict(form: PredictForm) -> Response:
        return Json(await service.known.predict(form))

    @app.post(
        "/api/predict/batch",
        summary="The same for many launches; one that fails has an error instead",
        responses=_gives("POST /api/predict/batch"),
    )
    async def predict_all(form: PredictAllForm) -> Response:
        found = await service.known.predict_all(form)
        return Json(
            [{"error": failure_of(one)[1]} if isinstance(one, ApportionError) else one for one in found]
        )

    @app.post(
        "/api/inspect",
        summary="Times on each device, the curve of cuts, what each line adds",
        responses=_gives("POST /api/inspect"),
    )
    async def inspect(form: InspectForm) -> Response:
        return Json(await service.inspect(form))

    def asks(verb: str, form_type: type, summary: str, path: str | None = None) -> None:
        async def ask(form: Any) -> Response:
            return Json(await service.pool.ask(verb, form))

        ask.__annotations__["form"] = form_type
        address = f"/api/{path or verb}"
        app.add_api_route(
            address, ask, methods=["POST"], summary=summary, name=verb, responses=_gives(f"POST {address}")
        )

    asks("explain", ExplainForm, "What moved the share that predict gives")
    asks("graph", GraphForm, "The program graph, in the reference's JSON")
    asks("picture", PictureForm, "The program graph as SVG, with the source line of each node")
    asks("analyze", AnalyzeForm, "A data-flow analysis over the program graph")
    asks("tune", TuneForm, "What the search of tune finds in a table of measured configurations")
    asks("import", ImportForm, "What another tool counted, as profiles", "counters/import")
    asks("rank", RankForm, "How well a baseline ranks recorded configurations of tensor programs")
    asks("schedule", ScheduleForm, "Jobs over systems by several policies")
    asks("relative", RelativeForm, "In which order systems would run what was profiled")


def _add_machine(app: FastAPI, service: Service) -> None:
    @app.get(
        "/api/health",
        summary="Whether the service answers, and what it allows",
        responses=_gives("GET /api/health"),
    )
    async def health() -> Response:
        return Json(
            {
                "version": app.version, "runs_code": service.settings.runs_code,
                "sandboxed": service.pool.restricted, "waiting": service.pool.waiting,
            }
        )  # fmt: skip

    @app.get(
        "/api/devices",
        summary="The devices that kernels can run on, with their measured speeds",
        responses=_gives("GET /api/devices"),
    )
    async def devices() -> Response:
        return Json(await service.devices())

    @app.get(
        "/api/doctor",
        summary="What is installed, what is found, and what is missing",
        responses=_gives("GET /api/doctor"),
    )
    async def doctor() -> Response:
        return Json(without_paths(await service.pool.ask("doctor", {}, seconds=_DOCTOR_SECONDS)))

    @app.get(
        "/api/models",
        summary="The models that the package ships, with their scores",
        responses=_gives("GET /api/models"),
    )
    async def models() -> Response:
        return Json(await service.pool.ask("models", {}))

    @app.get(
        "/api/policies", summary="The names of the scheduling policies", responses=_gives("GET /api/policies")
    )
    async def policies() -> Response:
        return Json(await service.pool.ask("policies", {}))

    @app.get("/api/examples", summary="Kernels to start from", responses=_gives("GET /api/examples"))
    async def examples() -> Response:
        return Json(starters())

    @app.get(
        "/api/examples/profiles",
        summary="Profiles that the model of relative performance knows",
        responses=_gives("GET /api/examples/profiles"),
    )
    async def example_profiles() -> Response:
        return Json(await service.pool.ask("example-profiles", {}))


def _add_jobs(app: FastAPI, service: Service) -> None:
    def begun(request: Request, verb: str, form: Any, name: str) -> Response:
        service.may_run()
        client = request.client.host if request.client is not None else ""
        job = service.jobs.add(verb, asdict(form), name, client)
        return Json(job.summary(), status_code=202, headers={"Location": f"/api/jobs/{job.id}"})

    @app.post(
        "/api/run",
        status_code=202,
        summary="Run a kernel on the devices found: a job",
        responses=_gives("POST /api/run", 202),
    )
    async def run(form: RunForm, request: Request) -> Response:
        return begun(request, "run", form, form.name or form.source.name)

    @app.post(
        "/api/measure",
        status_code=202,
        summary="Measure kernels on every device: a job",
        responses=_gives("POST /api/measure", 202),
    )
    async def measure(form: MeasureForm, request: Request) -> Response:
        return begun(
            request, "measure", form, form.name or ", ".join(source.name for source in form.sources[:3])
        )

    @app.post(
        "/api/train",
        status_code=202,
        summary="Train a model on what is sent or was measured: a job",
        responses=_gives("POST /api/train", 202),
    )
    async def train(form: TrainForm, request: Request) -> Response:
        for id in form.jobs:
            measured = service.history.job(id)
            if measured.verb != "measure" or measured.state != "done":
                raise InvalidSetting(f"The job {id} is no measuring job that is done")
        return begun(request, "train", form, form.name or "training")

    @app.get(
        "/api/measured",
        summary="Every kernel that was run or measured here, with its work and its time",
        responses=_gives("GET /api/measured"),
    )
    async def measured() -> Response:
        return Json(service.history.measured())

    @app.get("/api/jobs", summary="The latest jobs, newest first", responses=_gives("GET /api/jobs"))
    async def jobs(
        limit: int = Query(100, ge=1, le=500), before: float | None = None, state: str | None = None
    ) -> Response:
        if state is not None and state not in STATES:
            raise UnknownName("state of jobs", state[:64], STATES)
        found = service.history.jobs(limit=limit, before=before, states=() if state is None else (state,))
        return Json([job.summary() for job in found])

    @app.get(
        "/api/jobs/{id}",
        summary="A job with its request and its answer",
        responses=_gives("GET /api/jobs/{id}"),
    )
    async def job(id: str) -> Response:
        return Json(service.history.job(id).as_json())

    @app.get(
        "/api/jobs/{id}/events", summary="What a job says, as server-sent events, until it ends",
        response_class=EventStream,
    )  # fmt: skip
    async def events(id: str, request: Request, after: int = Query(0, ge=0, le=1 << 31)) -> Response:
        service.history.job(id)
        last = request.headers.get("last-event-id", "")
        start = int(last) if last.isdigit() and len(last) < 10 else after
        return EventStream(_stream(service, id, start), headers={"Cache-Control": "no-store"})

    @app.post(
        "/api/jobs/{id}/cancel",
        summary="End a job that waits or runs",
        responses=_gives("POST /api/jobs/{id}/cancel"),
    )
    async def cancel(id: str) -> Response:
        return Json(service.jobs.cancel(id).summary())

    @app.patch("/api/jobs/{id}", summary="Give a job a name", responses=_gives("PATCH /api/jobs/{id}"))
    async def rename(id: str, form: NameForm) -> Response:
        service.history.rename(id, form.name.strip())
        return Json(service.history.job(id).summary())

    @app.delete(
        "/api/jobs/{id}", summary="Forget a job that has ended", responses=_gives("DELETE /api/jobs/{id}")
    )
    async def remove(id: str) -> Response:
        service.history.remove(id)
        return Json({"removed": id})


async def _stream(service: Service, id: str, after: int) -> AsyncIterator[str]:
    async for event in service.jobs.events(id, after=after):
        if event is None:
            yield ": still there\n\n"
        else:
            yield f"id: {event[0]}\nevent: progress\ndata: {json.dumps(event[1])}\n\n"
    yield f"event: end\ndata: {json.dumps(service.history.job(id).summary())}\n\n"


def _add_page(app: FastAPI) -> None:
    files = {path.name: path for path in PAGE.iterdir()} if PAGE.is_dir() else {}

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        if "index.html" not in files:
            return Response("The page is not built. Build it with: make web", 404)
        return FileResponse(files["index.html"], headers={"Cache-Control": "no-cache"})

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return FileResponse(files[name], headers={"Cache-Control": "no-cache"})


def _error(status: int, body: dict[str, Any], retry_after: int | None = None) -> Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Json({"error": body}, status_code=status, headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApportionError)
    status, body = failure_of(error)
    if isinstance(error, UnknownName) and error.kind == "job":
        status = 404
    return _error(status, body, getattr(error, "retry_after", None))


async def _invalid(request: Request, error: Exception) -> Response:
    """Every problem after the name of its field, without what the client sent."""
    assert isinstance(error, RequestValidationError)
    said = "; ".join(_complaint(problem) for problem in error.errors()[:10])
    return _error(422, {"kind": "InvalidSetting", "message": said})


def _complaint(problem: Any) -> str:
    place = ".".join(str(part)[:60] for part in problem["loc"] if part != "body")
    said = problem.get("ctx", {}).get("error")
    message = problem["msg"] if said is None else str(said)
    said = f"{place}: {message}" if place else message
    return str(without_paths(said))[:600]


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {404: "There is nothing at this address", 405: "This address has no such method"}.get(
        error.status_code, "The request cannot be read"
    )
    return _error(error.status_code, {"kind": "Refused", "message": message})


async def _bug(request: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    return _error(500, BUG)

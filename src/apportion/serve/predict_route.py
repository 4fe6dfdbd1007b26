"""The busiest address, `POST /api/predict`, answered before the framework, in a third of the time.

Only a request whose body is right is answered here. The framework gets any other one, and says what is wrong.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from apportion.errors import ApportionError
from apportion.serve.failures import BUG, failure_of
from apportion.serve.forms import PredictForm
from apportion.serve.guard import Application, Receive, Send, json_bytes, replayed

_FORM = TypeAdapter(PredictForm)
Answers = Callable[[PredictForm], Awaitable[dict[str, Any]]]


class PredictRoute:
    """An ASGI application around another one, whose requests have come in whole (`Guard`)."""

    def __init__(self, application: Application, predict: Answers) -> None:
        self._application, self._predict = application, predict

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http" or scope["path"] != "/api/predict" or scope["method"] != "POST":
            await self._application(scope, receive, send)
            return
        body = (await receive()).get("body", b"")
        try:
            form = _FORM.validate_json(body)
        except (ValidationError, ApportionError):
            await self._application(scope, replayed(body, receive), send)
            return
        headers = [(b"content-type", b"application/json")]
        try:
            status, answer = 200, await self._predict(form)
        except ApportionError as error:
            status, problem = failure_of(error)
            answer = {"error": problem}
            if (seconds := getattr(error, "retry_after", None)) is not None:
                headers.append((b"retry-after", str(seconds).encode()))
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            status, answer = 500, {"error": BUG}
        data = json_bytes(answer)
        headers.append((b"content-length", str(len(data)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

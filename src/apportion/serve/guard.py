"""The door of the service: who asks, from which page, how often, how much, and how slowly.

Pages of other sites can make a browser send requests to this machine. Those that go to a name that was
rebound to 127.0.0.1 carry a foreign `Host`, those from a form or a script a foreign `Origin`; neither gets an
answer, and what runs code needs a token that no other page knows.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from apportion.serve.failures import Refused, failure_of
from apportion.serve.service_settings import ServiceSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"Inline styles are the editor's."
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"), (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"), (b"x-frame-options", b"DENY"),
]  # fmt: skip
_OPEN = ("/api/jobs", "/api/measured", "/api/run", "/api/measure", "/api/train")
"What needs the token on loopback too: it runs code, writes, or shows what others sent."
_CLIENTS = 4096
"Clients whose rate is remembered."


class Guard:
    """An ASGI application around another one."""

    def __init__(self, application: Application, settings: ServiceSettings) -> None:
        self._application, self._settings = application, settings
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"There is nothing here but HTTP, no {scope['type']}")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        client = _client_of(scope)
        self._under_way[client] += 1
        try:
            try:
                headers = self._checked(scope)
                body = await self._body(scope, headers, receive)
            except Refused as refused:
                await _refuse(refused, sending)
                return
            await self._application(scope, replayed(body, receive), sending)
        finally:
            self._under_way[client] -= 1
            if self._under_way[client] <= 0:
                del self._under_way[client]

    def _checked(self, scope: MutableMapping[str, Any]) -> dict[bytes, bytes]:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"origin", b"authorization", b"content-length"):
                raise Refused(400, f"The header {name.decode()} is there twice")
            headers[name] = value
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._settings.is_ours(host):
            raise Refused(
                421,
                f"This service is {self._settings.place}, not what Host says. --name gives it another name",
            )
        origin = headers.get(b"origin")
        foreign = origin is not None and not self._settings.is_own_page(origin.decode("latin-1"), host)
        elsewhere = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
        followed_link = scope["path"] == "/" and scope["method"] == "GET"
        if foreign or (elsewhere and not followed_link):
            raise Refused(403, "Pages of other sites may not ask this service")
        self._count(scope)
        if self._needs_token(scope) and not self._has_token(headers):
            raise Refused(
                401, "This needs the token that `apportion serve` printed: Authorization: Bearer TOKEN"
            )
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json":
                raise Refused(415, "Send JSON, with Content-Type: application/json")
        return headers

    def _needs_token(self, scope: MutableMapping[str, Any]) -> bool:
        path = scope["path"]
        if not path.startswith("/api/"):
            return False  # the page itself holds nothing
        return not self._settings.on_loopback or path.startswith(_OPEN)

    def _has_token(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._settings.token.encode())

    def _count(self, scope: MutableMapping[str, Any]) -> None:
        """Take one from the client's allowance, which grows back with time."""
        client = _client_of(scope)
        if self._under_way[client] > self._settings.at_once:
            raise Refused(
                429,
                f"{self._settings.at_once} requests of yours are under way. Ask again later",
                retry_after=1,
            )
        now = time.monotonic()
        left, since = self._buckets.pop(client, (float(self._settings.burst), now))
        rate = self._settings.requests_per_second
        left = min(float(self._settings.burst), left + (now - since) * rate)
        self._buckets[client] = (max(0.0, left - 1), now)
        while len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = max(1, math.ceil((1 - left) / rate))
            raise Refused(429, "Too many requests. Ask again later", retry_after=wait)

    async def _body(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes], receive: Receive
    ) -> bytes:
        """The whole body, which must come in time and not be too long."""
        most = self._settings.body_bytes
        too_long = Refused(413, f"A request may have {most:,} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Refused(400, "Content-Length must be a number")
        if len(length) > 15 or int(length) > most:
            raise too_long
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "The client left before it had sent its request")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > most:
                        raise too_long
        except TimeoutError:
            raise Refused(408, "The request took too long to arrive") from None
        return b"".join(parts)


def _client_of(scope: MutableMapping[str, Any]) -> str:
    """Who asks, by address."""
    return scope["client"][0] if scope.get("client") else ""


def json_bytes(value: Any) -> bytes:
    """JSON as it is sent: valid UTF-8, whatever a compiler quoted of a source."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def replayed(body: bytes, receive: Receive) -> Receive:
    """What was read already, once; then whatever else the client does."""
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay


async def _refuse(refused: Refused, send: Send) -> None:
    status, body = failure_of(refused)
    data = json_bytes({"error": body})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        (b"connection", b"close"),
    ]
    if refused.retry_after is not None:
        headers.append((b"retry-after", str(refused.retry_after).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})

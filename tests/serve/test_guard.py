"""The door: other sites, other names, no token, too much, too slow, too often, and nothing that leaks."""

from __future__ import annotations

import json
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InvalidSetting
from apportion.serve.failures import without_paths
from apportion.serve.service_settings import ServiceSettings
from reproduction.service.abuse import VERBS, leaks, malformed
from tests.serve.conftest import SAXPY, TOKEN, Service, opencl

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytestmark = pytest.mark.xdist_group("serve")

PREDICT = {"source": opencl(SAXPY), "local_size": 64, "bytes": 1 << 20}
RUN = {"source": opencl(SAXPY), "global_size": 1024, "repeat": 1, "cuts": False}


def raw(service: Service, data: bytes, *, seconds: float = 20.0) -> bytes:
    """What comes back for bytes as they are."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=seconds) as connection:
        connection.sendall(data)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
                if b"\r\n\r\n" in b"".join(parts) and b"onnection: close" in b"".join(parts):
                    break
        except (TimeoutError, ConnectionResetError):
            pass
        return b"".join(parts)


def test_a_name_that_was_rebound_to_this_machine_gets_no_answer(service):
    for host in (
        "evil.example",
        f"evil.example:{service.port}",
        "127.0.0.1",
        "",
        f"127.0.0.1:{service.port}x",
    ):
        answer = service.ask("POST", "/api/predict", PREDICT, headers={"Host": host})
        assert answer.status == 421, host
    assert service.ask("GET", "/", headers={"Host": "evil.example"}).status == 421
    assert service.ask("GET", "/api/health", headers={"Host": f"localhost:{service.port}"}).status == 200


def test_a_page_of_another_site_gets_no_answer_even_with_the_token(service):
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{service.port + 1}", "file://"):
        answer = service.ask("POST", "/api/run", RUN, headers={"Origin": origin})
        assert answer.status == 403, origin
    fetched = service.ask("GET", "/api/jobs", headers={"Sec-Fetch-Site": "cross-site"})
    assert fetched.status == 403
    ours = {"Origin": f"http://127.0.0.1:{service.port}"}
    assert service.ask("POST", "/api/predict", PREDICT, headers=ours).status == 200


def test_a_form_cannot_send_json_under_another_name(service):
    answer = service.ask(
        "POST", "/api/predict", data=json.dumps(PREDICT).encode(), headers={"Content-Type": "text/plain"}
    )
    assert answer.status == 415


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_what_runs_code_writes_or_shows_jobs_needs_the_token(service, token):
    asked = [
        ("POST", "/api/run", RUN), ("POST", "/api/measure", {"sources": [opencl(SAXPY)]}),
        ("GET", "/api/jobs", None), ("GET", "/api/jobs/1234", None), ("POST", "/api/jobs/1/cancel", {}),
        ("DELETE", "/api/jobs/1", None), ("PATCH", "/api/jobs/1", {"name": "x"}),
        ("GET", "/api/jobs/1/events", None),
    ]  # fmt: skip
    for method, path, body in asked:
        answer = service.ask(method, path, body, token=token)
        assert answer.status == 401, (method, path)
        assert "token" in answer.json["error"]["message"]


def test_beyond_loopback_everything_but_the_page_needs_the_token(tmp_path):
    service = Service(tmp_path, ("--host", "0.0.0.0", "--name", "studio.example")).start()
    try:
        service.base = service.base.replace("0.0.0.0", "127.0.0.1")
        assert service.ask("POST", "/api/predict", PREDICT, token=None).status == 401
        assert service.ask("GET", "/api/health", token=None).status == 401
        assert service.ask("GET", "/").status == 200
        for host in (f"0.0.0.0:{service.port}", f"192.0.2.7:{service.port}", "studio.example"):
            assert service.ask("GET", "/api/health", headers={"Host": host}).status == 200, host
        for host in (f"evil.example:{service.port}", "192.0.2.7:1", "192.0.2.7", f"1.2.3.4.5:{service.port}"):
            assert service.ask("GET", "/api/health", headers={"Host": host}).status == 421, host
    finally:
        service.stop()


@pytest.mark.parametrize(
    ("settings", "ours", "foreign"),
    [
        ({}, ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"], ["localhost", "10.0.0.1:8765"]),
        ({"host": "10.0.0.1"}, ["10.0.0.1:8765"], ["127.0.0.1:8765", "10.0.0.2:8765", "box:8765"]),
        ({"host": "::"}, ["[2001:db8::1]:8765", "10.0.0.2:8765", "localhost:8765"], ["[x]:8765", "::1:8765"]),
        ({"names": ("localhost:9000",)}, ["localhost:9000", "localhost:8765"], ["localhost:9001"]),
        ({"host": "0.0.0.0", "port": 80}, ["localhost", "10.0.0.2:80"], ["evil.example", "evil.example:80"]),
    ],
)  # fmt: skip
def test_hosts_by_which_clients_may_call_the_service(tmp_path, settings, ours, foreign):
    found = ServiceSettings(folder=tmp_path, **settings)
    assert [host for host in ours if not found.is_ours(host)] == []
    assert [host for host in foreign if found.is_ours(host)] == []


def test_a_page_is_ours_only_where_it_asks_the_host_that_it_came_from(tmp_path):
    found = ServiceSettings(folder=tmp_path, host="0.0.0.0", names=("studio.example",))
    assert found.is_own_page("http://10.0.0.2:8765", "10.0.0.2:8765")
    assert found.is_own_page("https://studio.example", "studio.example")  # behind a proxy that encrypts
    assert not found.is_own_page("http://10.0.0.3:8765", "10.0.0.2:8765")
    assert not found.is_own_page("https://10.0.0.2:8765", "10.0.0.2:8765")
    assert not found.is_own_page("null", "studio.example")


def test_a_name_that_is_none_is_refused(tmp_path):
    for name in ("http://x", "a b", "x:y", "*"):
        with pytest.raises(InvalidSetting, match="NAME or NAME:PORT"):
            ServiceSettings(folder=tmp_path, names=(name,))


def test_a_request_that_is_too_large_is_refused_before_it_is_read(service):
    head = (
        f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nContent-Type: application/json\r\n"
    )
    answer = raw(service, (head + "Content-Length: 99999999999\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 413")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = raw(service, (head + "Transfer-Encoding: chunked\r\n\r\n").encode() + 17 * chunk)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_source_that_is_too_large_is_refused(service):
    answer = service.ask("POST", "/api/predict", {**PREDICT, "source": opencl("x" * 600_000)})
    assert answer.status == 422
    assert "524,288 characters" in answer.json["error"]["message"]


def test_a_slow_client_is_sent_away_and_keeps_nobody_waiting(tmp_path):
    from dataclasses import replace
    from threading import Thread

    from apportion.serve import server

    settings = ServiceSettings(port=0, token=TOKEN, folder=tmp_path)
    listening = server.bound(settings)
    settings = replace(settings, port=listening.getsockname()[1], body_seconds=0.5)
    service = Service(tmp_path)
    service.base = f"http://127.0.0.1:{settings.port}"
    running = server.server_of(settings)
    thread = Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert service.ask("GET", "/api/health").status == 200
        head = f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{settings.port}\r\n".encode()
        began = time.monotonic()
        assert raw(service, head, seconds=10) == b""  # headers that never end
        assert time.monotonic() - began < 5
        more = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        assert raw(service, head + more, seconds=10).startswith(b"HTTP/1.1 408")
        crowd = [socket.create_connection(("127.0.0.1", settings.port)) for _ in range(50)]
        assert service.ask("POST", "/api/predict", PREDICT).status == 200
        for connection in crowd:
            connection.close()
    finally:
        running.should_exit = True
        thread.join(20)


def test_answers_are_sent_without_delay(tmp_path):
    from apportion.serve import server

    with (
        server.bound(ServiceSettings(port=0, token=TOKEN, folder=tmp_path)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY


def test_no_path_leads_out_of_the_page(service):
    names = ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "/etc/passwd", "%2fetc%2fpasswd")
    for name in names:
        answer = raw(
            service,
            f"GET /page/{name} HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nConnection: close\r\n\r\n".encode(),
        )
        assert b" 404 " in answer.split(b"\r\n")[0], name
        assert b"import" not in answer


def test_the_service_reads_no_file_that_an_argument_names(service):
    for argument in ("x=/etc/passwd", "x=secret.npy", "x=../x.npy", "x=~/x"):
        answer = service.ask("POST", "/api/run", {**RUN, "arguments": [argument]})
        assert answer.status == 422
        assert "reads no files" in answer.json["error"]["message"]


def test_a_source_includes_no_file_of_this_machine(service):
    for name in ("/etc/passwd", "../../../../etc/passwd", "/proc/self/environ"):
        text = f'#include "{name}"\n' + SAXPY
        answer = service.ask("POST", "/api/inspect", {"source": opencl(text)})
        assert answer.status == 422
        assert "root:" not in answer.text
        assert "PATH=" not in answer.text


def opens(path: str) -> str:
    """A kernel that never ends if it can open a file, by a system call that only the driver's compiler sees."""
    letters = ", ".join(str(ord(letter)) for letter in path + "\0")
    return f"""
    long opened(char* path) {{
        long found = -1;
    #ifndef __SPIR__
        __asm__ volatile("syscall" : "=a"(found) : "a"(2L), "D"(path), "S"(0L), "d"(0L) : "rcx", "r11", "memory");
    #endif
        return found;
    }}
    __kernel void steal(__global volatile int* out) {{
        char path[] = {{ {letters} }};
        if (opened(path) >= 0)
            while (out[0] != 12345) ;
        out[get_global_id(0)] = 1;
    }}"""


def test_a_kernel_that_calls_the_machine_opens_no_file_of_the_user(service):
    secret = Path.home() / f".apportion-test-{random.randrange(10**9)}"
    secret.write_text("A")
    body = {**RUN, "trust": True, "devices": ["cpu"], "seconds": 1.0}
    try:
        if not service.ask("GET", "/api/health").json["sandboxed"]:
            pytest.skip("this machine has no Landlock")
        for path in (str(secret), "/etc/shadow", "/etc/passwd"):
            job = service.job("/api/run", {**body, "source": opencl(opens(path))})
            # Refused, or killed for the call where the driver's process may make none; never opened.
            assert job["state"] == "done" or job["error"]["kind"] != "DeadlineExceeded", path
    finally:
        secret.unlink()


def test_malformed_requests_get_an_error_of_ours_and_tell_nothing_of_the_machine(service):
    generator = random.Random(7)
    seen = set()
    for _ in range(200):
        path = f"/api/{generator.choice(VERBS)}"
        answer = service.ask("POST", path, data=malformed(generator))
        seen.add(answer.status)
        assert answer.status in (200, 202, 400, 422, 429, 504), (answer.status, path, answer.text[:300])
        if answer.status >= 400:
            assert set(answer.json) == {"error"}
            assert not leaks(answer.text), answer.text[:500]
    assert 422 in seen
    assert service.ask("POST", "/api/predict", PREDICT).status == 200


async def asked(guard: Any, client: str) -> tuple[int, dict[bytes, bytes]]:
    """The status and headers with which a guard answers a client, without a socket between them."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/api/health", "client": (client, 1),
        "headers": [(b"host", b"127.0.0.1:8765")],
    }  # fmt: skip
    await guard(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


def test_a_client_that_asks_too_often_is_told_when_to_come_back(tmp_path):
    import asyncio

    from apportion.serve.guard import Guard

    settings = ServiceSettings(folder=tmp_path, requests_per_second=1, burst=3)
    answered = []

    async def application(scope, receive, send):
        answered.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def all_of_them():
        guard = Guard(application, settings)
        first = [await asked(guard, "one") for _ in range(4)]
        return first, await asked(guard, "other")

    first, other = asyncio.run(all_of_them())
    assert [status for status, _ in first] == [200, 200, 200, 429]
    assert first[-1][1][b"retry-after"] == b"1"
    assert int(first[-1][1][b"content-length"]) > 0  # so that a client knows where the answer ends
    assert other[0] == 200


def test_a_client_has_only_so_many_requests_under_way(tmp_path):
    import asyncio

    from apportion.serve.guard import Guard

    async def all_of_them() -> list[int]:
        free = asyncio.Event()

        async def application(scope, receive, send):
            await free.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        guard = Guard(application, ServiceSettings(folder=tmp_path, at_once=2))

        first = [asyncio.create_task(asked(guard, "one")) for _ in range(2)]
        await asyncio.sleep(0)
        refused = await asked(guard, "one")
        other = asyncio.create_task(asked(guard, "other"))
        await asyncio.sleep(0)
        free.set()
        answers = [refused, *await asyncio.gather(*first, other), await asked(guard, "one")]
        return [status for status, _ in answers]

    assert asyncio.run(all_of_them()) == [429, 200, 200, 200, 200]


def test_paths_are_cut_to_their_last_part():
    assert without_paths("see /home/me/x/kernel.cl:3 and a/b") == "see kernel.cl:3 and a/b"
    assert without_paths({"a": ["/usr/lib/python3", 1]}) == {"a": ["python3", 1]}
    assert without_paths("http://127.0.0.1:8765/api") == "http://127.0.0.1:8765/api"


def test_a_short_token_and_an_impossible_port_are_refused(tmp_path):
    with pytest.raises(InvalidSetting, match="at least 16 characters, not 5"):
        ServiceSettings(token="short", folder=tmp_path)
    with pytest.raises(InvalidSetting, match="port must lie between 0 and 65535"):
        ServiceSettings(port=70000, folder=tmp_path)

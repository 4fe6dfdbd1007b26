"""Every address of the OpenAPI description, asked by schemathesis what fits it and what does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.serve.conftest import TOKEN, Service

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytestmark = [
    pytest.mark.xdist_group("serve"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

from schemathesis.specs.openapi.checks import response_schema_conformance  # noqa: E402

from apportion.serve.app import openapi  # noqa: E402  (after it is known that FastAPI is there)

DESCRIBED = openapi()
OPERATIONS = {
    f"{method.upper()} {path}": how for path, all in DESCRIBED["paths"].items() for method, how in all.items()
}
KINDS = [(name, "positive") for name in OPERATIONS] + [
    (name, "negative")
    for name, how in OPERATIONS.items()
    if "requestBody" in how or any(one["in"] == "query" for one in how.get("parameters", ()))
]
"Each address with what fits its description, and with what does not where there is such a thing."
LEAKS = re.compile(r"/(?:home|root|work|tmp|usr)/[\w.]|site-packages|Traceback|PATH=|HOME=")
"What no answer may hold: paths of this machine, its environment, tracebacks."
EXAMPLES = 4
"Requests of each kind for each address."


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that runs no code, so that no request begins a job."""
    found = Service(tmp_path_factory.mktemp("described"), ("--no-run", "--rate", "100000")).start()
    yield found
    found.stop()


def test_every_verb_of_the_service_is_among_the_addresses_that_are_asked():
    assert {"POST /api/predict", "POST /api/run", "GET /api/jobs/{id}/events"} <= set(OPERATIONS)
    assert len(OPERATIONS) >= 24


@pytest.mark.parametrize(("operation", "mode"), KINDS)
def test_what_is_made_from_the_description_is_answered_without_a_fault(described, operation, mode):
    method, path = operation.split(" ")
    schema = schemathesis.openapi.from_dict(DESCRIBED)
    asked = schema[path][method]

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=asked.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case):
        answer = case.call(base_url=described.base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=90)
        assert answer.status_code != 500, answer.text
        assert answer.status_code in (200, 202, 405) or answer.json()["error"]["message"]
        assert str(answer.status_code) in asked.definition.raw["responses"] or answer.status_code == 405
        assert not LEAKS.search(answer.text), answer.text[:500]
        if answer.status_code != 405:
            case.validate_response(answer, checks=[response_schema_conformance])

    ask()
    assert described.process is not None
    assert described.process.poll() is None

"""Every policy of the registry passes the checks that are meant for anybody's, and every number of theirs matters."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import REMEMBERING, Observations, ObservationSettings, PastLaunch
from apportion.coexecution.policies import base, policies, policy_of
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.dynamic import ChunkSettings, DynamicPolicy
from apportion.coexecution.policies.feedback import FEEDBACK, FeedbackPolicy, FeedbackSettings
from apportion.coexecution.policies.learned import LearnedPolicy, PredictionSettings
from apportion.coexecution.policies.oracle import OraclePolicy, SearchSettings
from apportion.errors import InvalidSetting, UnknownName
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Split
from apportion.testing import policy_checks
from apportion.testing.policy_checks import TRUTHS, PolicyChecks, play, situation_of
from tests.coexecution.policies import test_recorded_decisions as recorded
from tests.conftest import Installer

DECIDING = ("bound", "observations")
"Modules beside the policies whose numbers decide, too."


def _device(name: str, units: int = 4, kind: str = "cpu") -> DeviceInfo:
    return DeviceInfo(name, name, kind, "v", "p", "d", "1", units, 1 << 30, 1 << 15, 1024)


CPU, GPU = _device("cpu"), _device("gpu", 8, "gpu")
BOTH = Situation(
    (CPU, GPU), 100, lambda: Forecast({"cpu": CostModel(0, 1.0), "gpu": CostModel(0, 1.0)}, 2.0, "a test")
)


class TestEveryPolicy(PolicyChecks):
    name: str

    @pytest.fixture(autouse=True, params=list(policies))
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def policy(self) -> Policy:
        return policy_of(self.name, [CPU, GPU])


def test_a_number_is_the_share_of_the_first_device() -> None:
    for said in ("0.35", 0.35):
        assert policy_of(said, [CPU, GPU]).choose(BOTH, Observations()).split.shares == {
            "cpu": 0.35,
            "gpu": 0.65,
        }


def test_the_name_of_a_device_gives_it_everything() -> None:
    assert policy_of("gpu", [CPU, GPU]).choose(BOTH, Observations()).split.shares == {"cpu": 0.0, "gpu": 1.0}


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No policy called 'evn'. Did you mean 'even'"):
        policy_of("evn", [CPU, GPU])


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"A share must lie between 0 and 1, not 1.5"):
        policy_of(1.5, [CPU, GPU])


def test_a_policy_of_another_package_is_found_by_its_entry_point(
    installed: Installer,
) -> None:
    code = (
        "from apportion.coexecution.observations import Choice\n"
        "from apportion.coexecution.policies.base import Policy\n"
        "from apportion.runtime.split import Split\n"
        "class Last(Policy):\n"
        "    def choose(self, situation, seen):\n"
        "        last = situation.names[-1]\n"
        "        return Choice(Split({name: float(name == last) for name in situation.names}), None, 'the last one')\n"
    )
    points = "[apportion.policy]\nlast = last_policy:Last\nnothing = last_policy:Split.even\n"
    installed({"last_policy.py": code}, points)
    assert "last" in policies
    assert policy_of("last", [CPU, GPU]).choose(BOTH, Observations()).split.shares == {"cpu": 0.0, "gpu": 1.0}


# What numbers do. A value for each at which some decision over the recorded curves is another one.
CHANGED = {
    "new_cut": 0.5, "unseen_cut": 0.3, "probe_share": 0.4, "probe_limit": 0.01, "later_share": 0.2, "later": 4,
    "alike": 1.0, "surprise": 5.0, "jitter": 1.0, "explore": 0.1, "short": 1.0, "explore_later": 0.1,
    "explore_far": 20.0, "wrong": 50.0, "misjudged": 50.0,
}  # fmt: skip


def test_every_number_of_the_feedback_policy_changes_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHANGED.keys() == {each.name for each in fields(FeedbackSettings)}
    usual = recorded.sequences()
    for name, value in CHANGED.items():
        settings = replace(FEEDBACK, **{name: value})
        with monkeypatch.context() as patch:
            patch.setattr(recorded, "FeedbackPolicy", lambda settings=settings: FeedbackPolicy(settings))
            assert recorded.sequences() != usual, name


REMEMBERED = {
    "kept": 1, "near": 0.0001, "uneven": 3.0, "after_another": 0.5, "after_shared": 0.5, "prior_weight": 1.0,
    "fades": 0.1, "fixed_part": 1.0, "near_part": 0.001, "scaled_by": 1, "least_slope": 0.9,
}  # fmt: skip


def test_every_number_of_remembering_changes_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REMEMBERED.keys() == {each.name for each in fields(ObservationSettings)}
    usual = recorded.sequences()
    for name, value in REMEMBERED.items():
        settings = replace(REMEMBERING, **{name: value})
        with monkeypatch.context() as patch:
            patch.setattr(recorded, "Observations", lambda settings=settings: Observations(settings=settings))
            assert recorded.sequences() != usual, name


def test_sharing_that_promises_little_is_not_begun_with() -> None:
    alike = situation_of(TRUTHS["alike"])
    split = LearnedPolicy().choose(alike, Observations()).split
    assert min(split.shares.values()) > 0
    wary = LearnedPolicy(PredictionSettings(promised=0.2)).choose(alike, Observations()).split
    assert sorted(wary.shares.values()) == [0.0, 1.0]
    sure = Forecast(dict(TRUTHS["alike"]), 1.5, "a model", policy_checks.SHARING_SECONDS, doubt=0.1)
    modelled = Situation(alike.devices, 1000, lambda: sure)
    assert min(LearnedPolicy().choose(modelled, Observations()).split.shares.values()) > 0
    wary = LearnedPolicy(PredictionSettings(promised_by_model=0.2)).choose(modelled, Observations()).split
    assert sorted(wary.shares.values()) == [0.0, 1.0]


def test_chunks_are_as_large_as_the_shares_are_sure() -> None:
    seen = Observations([PastLaunch({"cpu": 1.0}, 0.01, {"cpu": 0.01})])
    alike = situation_of(TRUTHS["alike"])
    first, later = (DynamicPolicy().choose(alike, each).chunks for each in (Observations(), seen))
    assert first is not None
    assert later is not None
    assert (first.first, later.first, later.least_groups) == (0.5, 0.75, 3)
    chunks = DynamicPolicy(ChunkSettings(at_once=0.25, least_share=0.4, chunks=10)).choose(alike, seen).chunks
    assert chunks is not None
    assert (chunks.first, chunks.least_groups) == (0.25, 100)
    assert min(chunks.shares.values()) >= 0.4


def test_the_oracle_finds_the_best_cut_and_times_as_many_as_it_is_told() -> None:
    truth = {"cpu": CostModel(0, 3e-2), "gpu": CostModel(0, 1e-2)}
    ((choice, _),) = play(OraclePolicy(), truth, situation_of(truth), 1)
    assert choice.split.shares["cpu"] == pytest.approx(0.25)
    assert choice.reason == "the best of 15 measured cuts"
    ((coarse, _),) = play(
        OraclePolicy(SearchSettings(steps=2, refinements=())), truth, situation_of(truth), 1
    )
    assert coarse.split.shares["cpu"] in (0.0, 0.5)
    ((third, _),) = play(OraclePolicy(), TRUTHS["three"], situation_of(TRUTHS["three"]), 1)
    ((fixed, _),) = play(
        OraclePolicy(SearchSettings(moves=())), TRUTHS["three"], situation_of(TRUTHS["three"]), 1
    )
    assert third.reason != fixed.reason == "the best of 4 measured cuts"


@pytest.mark.parametrize(
    "settings", [ObservationSettings, FeedbackSettings, PredictionSettings, ChunkSettings, SearchSettings]
)
def test_numbers_check_themselves(settings: type) -> None:
    for each in fields(settings):
        wrong = (5.0,) if isinstance(each.default, tuple) else -1
        with pytest.raises(InvalidSetting):
            settings(**{each.name: wrong})
    assert Split.even(["a"])


def test_no_number_of_a_policy_is_a_constant_of_a_module():
    """It is a field of a settings value, with its unit, its origin and a test."""
    folder = Path(base.__file__).parent
    constants = [
        f"{path.name}:{statement.lineno}"
        for path in (*folder.glob("*.py"), *(folder.parent / f"{name}.py" for name in DECIDING))
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        if any(
            isinstance(part, ast.Constant) and isinstance(part.value, int | float)
            for part in ast.walk(statement)
        )
    ]
    assert constants == []

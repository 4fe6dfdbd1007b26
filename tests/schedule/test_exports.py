"""Tables of predictions as SkyPilot, Kueue and Flux take them, against the fields that their schemas publish."""

from __future__ import annotations

import math

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apportion.errors import InvalidSetting, MalformedInput
from apportion.schedule.exports import FORMS, ExportOptions, dns_name, orders_of
from apportion.schedule.slurm.estimates import ClassPrediction, read_class_predictions

DNS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def strict(required, **others):
    return {"type": "object", "required": list(required), "properties": {**required, **others},
            "additionalProperties": False}  # fmt: skip


TEXT = {"type": "string", "minLength": 1}
NAME = {"type": "string", "pattern": DNS, "maxLength": 63}

# docs.skypilot.co, SkyPilot YAML: the fields that a task written here can have.
CANDIDATE = strict({}, accelerators=TEXT, instance_type=TEXT, infra=TEXT, cpus=TEXT) | {"minProperties": 1}
SKYPILOT = strict(
    {"resources": strict({"ordered": {"type": "array", "minItems": 1, "items": CANDIDATE}})},
    name={"type": "string", "pattern": "^[a-zA-Z0-9]+([._-]{1,2}[a-zA-Z0-9]+)*$"}, run=TEXT,
)  # fmt: skip

# kueue.x-k8s.io/v1beta1: ResourceFlavor, ClusterQueue, LocalQueue.
LABEL_VALUE = {"type": "string", "pattern": r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"}
QUOTA = strict({"name": TEXT, "nominalQuota": {"type": "string", "pattern": r"^\d+([kMGTPE]i?|m)?$"}})
FLAVOR = strict({"name": NAME, "resources": {"type": "array", "minItems": 1, "maxItems": 64, "items": QUOTA}})
GROUP = strict({
    "coveredResources": {"type": "array", "minItems": 1, "maxItems": 64, "items": TEXT, "uniqueItems": True},
    "flavors": {"type": "array", "minItems": 1, "maxItems": 64, "items": FLAVOR},
})  # fmt: skip


def kueue_object(kind, spec, **metadata):
    return strict({"apiVersion": {"const": "kueue.x-k8s.io/v1beta1"}, "kind": {"const": kind},
                   "metadata": strict({"name": NAME, **metadata}), "spec": spec})  # fmt: skip


KUEUE = strict({
    "apiVersion": {"const": "v1"}, "kind": {"const": "List"},
    "items": {"type": "array", "items": {"oneOf": [
        kueue_object("ResourceFlavor", strict({"nodeLabels": {
            "type": "object", "minProperties": 1, "maxProperties": 8, "additionalProperties": LABEL_VALUE}})),
        kueue_object("ClusterQueue", strict(
            {"resourceGroups": {"type": "array", "maxItems": 16, "items": GROUP}},
            cohort=NAME, namespaceSelector={"type": "object"})),
        kueue_object("LocalQueue", strict({"clusterQueue": NAME}), namespace=NAME,
                     annotations={"type": "object", "additionalProperties": {"type": "string"}}),
    ]}},
})  # fmt: skip

# RFC 25 (jobspec version 1) with RFC 31 (constraints).
PROPERTIES = strict({"properties": {"type": "array", "minItems": 1,
                                    "items": {"type": "string", "pattern": "^[^!&'\"^`|()\\s]+$"}}})  # fmt: skip
INSIDE = strict({"type": {"enum": ["core", "gpu"]}, "count": {"type": "integer", "minimum": 1}})
FLUX = strict({
    "version": {"const": 1},
    "resources": {"type": "array", "minItems": 1, "maxItems": 1, "items": strict({
        "type": {"const": "slot"}, "count": {"type": "integer", "minimum": 1}, "label": TEXT,
        "with": {"type": "array", "minItems": 1, "maxItems": 2, "items": INSIDE,
                 "contains": {"properties": {"type": {"const": "core"}}}},
    })},
    "tasks": {"type": "array", "minItems": 1, "maxItems": 1, "items": strict({
        "command": {"type": "array", "minItems": 1, "items": {"type": "string"}}, "slot": TEXT,
        "count": strict({"per_slot": {"const": 1}})})},
    "attributes": strict({"system": strict({
        "duration": {"type": "number", "minimum": 0},
        "constraints": {"oneOf": [PROPERTIES, strict({"or": {"type": "array", "minItems": 2,
                                                             "items": PROPERTIES}})]}})},
        user={"type": "object"}),
})  # fmt: skip

SCHEMAS = {"skypilot": SKYPILOT, "kueue": KUEUE, "flux": FLUX}
SYSTEMS = ("v100", "p100", "K80 nodes", "cpu")
OPTIONS = {
    "skypilot": ExportOptions(called={"K80 nodes": "K80:2", "cpu": "cpus=8+"}, command="python train.py"),
    "kueue": ExportOptions(called={"K80 nodes": "Tesla-K80"}, slots=dict.fromkeys(SYSTEMS, 4),
                           slot={"nvidia.com/gpu": "1", "memory": "32Gi"}),
    "flux": ExportOptions(called={"K80 nodes": "k80"}, slot={"gpu": "1"}, command="python train.py --fast"),
}  # fmt: skip
TWO = {
    "bert": ClassPrediction({"v100": 100.0, "p100": 150.0, "K80 nodes": 500.0}, {}, {"p100": 0.5}),
    "Mat Mul!": ClassPrediction({}, {"p100": -0.5, "v100": 0.5}, {}),
}

predictions = st.dictionaries(
    st.text("abcXYZ09 _-/é", min_size=1, max_size=8).filter(lambda text: any(c in "abcXYZ09" for c in text)),
    st.builds(
        ClassPrediction,
        st.dictionaries(st.sampled_from(SYSTEMS), st.floats(1e-3, 1e6), min_size=1),
        st.just({}),
        st.dictionaries(st.sampled_from(SYSTEMS), st.floats(0, 3)),
    ),
    max_size=4,
)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None)
@given(predictions=predictions, within=st.sampled_from([1.0, 2.0, math.inf]))
def test_whatever_is_predicted_the_document_has_the_published_form(form, predictions, within):
    assume(len({dns_name(name) for name in predictions}) == len(predictions))
    documents = FORMS[form](orders_of(predictions, within=within), OPTIONS[form])
    for document in documents.values():
        jsonschema.validate(document, SCHEMAS[form])


@pytest.mark.parametrize("form", FORMS)
def test_the_schemas_refuse_what_the_form_does_not_have(form):
    (document, *_) = FORMS[form](orders_of(TWO), OPTIONS[form]).values()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "another": 1}, SCHEMAS[form])


def test_the_fastest_comes_first_and_the_slow_and_the_unsure_are_left_out():
    said = {"a": ClassPrediction({"x": 30.0, "y": 10.0, "z": 90.0, "u": 11.0}, {}, {"u": 2.5})}
    (order,) = orders_of(said, within=4)
    assert order.systems == ("y", "x")
    assert orders_of(said, systems=["z"])[0].systems == ("z",)
    assert orders_of(said, systems=["u"]) == []


def test_a_task_of_skypilot_tries_accelerators_in_the_predicted_order():
    documents = FORMS["skypilot"](orders_of(TWO), OPTIONS["skypilot"])
    assert documents["bert.yaml"]["resources"]["ordered"] == [
        {"accelerators": "v100"},
        {"accelerators": "p100"},
    ]
    assert documents["mat-mul.yaml"]["resources"]["ordered"][0] == {"accelerators": "p100"}
    assert documents["bert.yaml"]["run"] == "python train.py"


def test_queues_of_kueue_differ_in_order_and_share_the_slots():
    items = FORMS["kueue"](orders_of(TWO), OPTIONS["kueue"])["kueue.json"]["items"]
    queues = {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "ClusterQueue"}
    order = {
        name: [one["name"] for one in spec["resourceGroups"][0]["flavors"]] for name, spec in queues.items()
    }
    assert order["apportion-v100-p100"] == ["v100", "p100"]
    assert order["apportion-p100-v100"] == ["p100", "v100"]
    quota = {
        (name, one["name"], each["name"]): each["nominalQuota"]
        for name, spec in queues.items()
        for one in spec["resourceGroups"][0]["flavors"]
        for each in one["resources"]
    }
    assert quota["apportion", "v100", "memory"] == "128Gi"
    assert {amount for (name, *_), amount in quota.items() if name != "apportion"} == {"0"}
    assert "namespaceSelector" not in queues["apportion"]
    assert {spec["cohort"] for spec in queues.values()} == {"apportion"}
    local = next(item for item in items if item["metadata"]["name"] == "apportion-p100-v100"
                 and item["kind"] == "LocalQueue")  # fmt: skip
    assert local["metadata"]["annotations"] == {"apportion/classes": "Mat Mul!"}


def test_a_jobspec_of_flux_is_limited_to_the_systems_that_suit_and_to_a_time():
    documents = FORMS["flux"](orders_of(TWO), OPTIONS["flux"])
    system = documents["bert.json"]["attributes"]["system"]
    assert system["constraints"] == {"or": [{"properties": ["v100"]}, {"properties": ["p100"]}]}
    z = 2.0537489
    assert system["duration"] == math.ceil(max(100 * 2**z, 150 * 2 ** (0.5 * z)))
    assert documents["bert.json"]["tasks"][0]["command"] == ["python", "train.py", "--fast"]
    assert documents["mat-mul.json"]["attributes"]["system"]["duration"] == 0
    only = FORMS["flux"](orders_of(TWO, systems=["v100"]), OPTIONS["flux"])
    assert only["bert.json"]["attributes"]["system"]["constraints"] == {"properties": ["v100"]}


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("skypilot", {"slot": {"core": "1"}}, "SkyPilot takes no --slot"),
        ("skypilot", {"called": {"v100": "V100:many"}}, "written NAME or NAME:COUNT, not 'V100:many'"),
        ("skypilot", {"called": {"v100": "color=red"}}, "SkyPilot has no 'color' to choose v100 by"),
        ("kueue", {}, "how many slots p100 has: --systems p100=SLOTS"),
        (
            "kueue",
            {"slots": {"v100": 1, "p100": 1}, "called": {"v100": "a b"}},
            "not 'a b'. Say how nodes of v100",
        ),
        ("kueue", {"slots": {"v100": 1, "p100": 1}, "slot": {"cpu": "some"}}, "'some' is none"),
        ("flux", {}, "--command 'PROGRAM ARGUMENTS'"),
        ("flux", {"command": "echo 'a"}, "cannot be split into words: No closing quotation"),
        ("flux", {"command": "a", "slot": {"gpu": "0"}}, "not gpu=0"),
        ("flux", {"command": "a", "called": {"v100": "a|b"}}, "unlike 'a|b'"),
    ],
)
def test_what_a_form_cannot_say_is_refused_with_what_to_write(form, options, message):
    with pytest.raises(InvalidSetting) as refused:
        FORMS[form](orders_of(TWO), ExportOptions(**options))
    assert message in str(refused.value)


def test_two_classes_of_one_name_are_refused():
    both = {"a b": ClassPrediction({"x": 1.0}), "A-b": ClassPrediction({"x": 1.0})}
    with pytest.raises(InvalidSetting, match="would both be called a-b"):
        FORMS["skypilot"](orders_of(both), ExportOptions())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,1,2\na,1,2\n", "class 'a' is predicted twice"),
        ("a,-1,2\n", "predicted:x: a predicted time must be positive"),
        ("a,0,2\n", "predicted:x: a predicted time must be positive"),
        ("a,fast,2\n", "'fast' is no number"),
    ],
)
def test_a_wrong_table_of_predictions_is_refused(tmp_path, rows, message):
    path = tmp_path / "predicted.csv"
    path.write_text(f"class,predicted:x,predicted:y\n{rows}")
    with pytest.raises(MalformedInput, match=message):
        read_class_predictions(path)

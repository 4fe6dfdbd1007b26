"""HPCToolkit's databases of both forms: real ones, and small ones that show what real ones hold."""

from __future__ import annotations

import struct

import polars as pl
import pytest

from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports import ImportOptions, NameMap, format_of, import_files

XML = """<?xml version="1.0"?>
<!DOCTYPE HPCToolkitExperiment [
<!ELEMENT HPCToolkitExperiment (Header, SecCallPathProfile)>
]>
<HPCToolkitExperiment version="2.0">
<Header n="cpi"><Info/></Header>
<SecCallPathProfile i="0" n="cpi">
<SecHeader><MetricTable>
<Metric i="2" n="CPUTIME (usec):Sum (I)" v="derived-incr" t="inclusive" partner="3" show="1"/>
<Metric i="3" n="CPUTIME (usec):Sum (E)" v="derived-incr" t="exclusive" partner="2" show="1"/>
<Metric i="4" n="PAPI_TOT_INS:Sum (I)" v="derived-incr" t="inclusive" show="1">
<MetricFormula t="combine" frm="sum($4, $4)"/><MetricFormula t="finalize" frm="$4"/></Metric>
<Metric i="5" n="PAPI_TOT_INS:Mean (I)" v="derived-incr" t="inclusive" show="1">
<MetricFormula t="combine" frm="sum($5, $5)"/><MetricFormula t="finalize" frm="$5 / $6"/></Metric>
<Metric i="6" n="PAPI_TOT_INS:Mean:num-src (I)" v="derived-incr" t="inclusive" show="0"/>
<Metric i="7" n="PAPI_BR_INS:Sum (I)" v="derived-incr" t="inclusive" show="1"/>
<Metric i="8" n="PAPI_L3_TCM:Sum (I)" v="derived-incr" t="inclusive" show="1"/>
</MetricTable>
<MetricDBTable>
<MetricDB i="0" n="CPUTIME (usec) (I)" t="inclusive" partner="1" db-glob="*.metric-db" db-id="0" db-num-metrics="2"/>
<MetricDB i="1" n="CPUTIME (usec) (E)" t="exclusive" partner="0" db-glob="*.metric-db" db-id="1" db-num-metrics="2"/>
</MetricDBTable></SecHeader>
<SecCallPathProfileData>
<M n="2" v="3.5e+06"/><M n="3" v="1"/><M n="4" v="1.2e+09"/><M n="5" v="1.2e+09"/><M n="6" v="2"/><M n="7" v="3e+08"/>
<PF i="2" s="499" l="0" lm="497" f="498" n="499"><M n="2" v="3.5e+06"/></PF>
</SecCallPathProfileData>
</SecCallPathProfile>
</HPCToolkitExperiment>
"""


def imported(path, **options):
    table = import_files([path], ImportOptions(**options))
    return table, dict(table.frame.select("counter", "value").iter_rows())


def experiment(folder, text=XML):
    (folder / "experiment.xml").write_text(text)
    return folder


def of_thread(folder, name, *values):
    """A file of a thread with two nodes, the first of which is the root."""
    head = b"HPCPROF-metricdb__00.10b" + struct.pack(">ii", 2, len(values))
    (folder / f"{name}.metric-db").write_bytes(
        head + struct.pack(f">{2 * len(values)}d", *values, *(0.0,) * len(values))
    )


def test_a_real_database_of_four_processes(published):
    """cpi, HPCToolkit of March 2017: the files of its processes add up to what the whole is said to have."""
    folder = published("CallFlow-1.1.1-py3-none-any.whl") / "data" / "hpctoolkit-cpi-database"
    processes = [struct.unpack_from(">d", file.read_bytes(), 32)[0] for file in folder.glob("*.metric-db")]
    assert sorted(processes) == [999_238, 999_308, 999_390, 1_000_306]
    table, found = imported(folder)
    assert found == {"CPUTIME (usec)": 3.99824e6, "seconds": 1.000306}
    assert found["CPUTIME (usec)"] == pytest.approx(sum(processes), rel=1e-6)
    assert set(table.frame["program"]) == {"cpi"}


def test_real_databases_with_statistics_of_threads(published):
    """FLASH: means and deviations are sums that wait for a formula, and no counters."""
    data = published("hpctoolkit_dataframe-0.3.0.tar.gz") / "test" / "data"
    table, found = imported(data / "experiment1.xml")
    assert found == {"CPUTIME (usec)": 7.21356e7, "seconds": pytest.approx(72.1356)}
    assert set(table.frame["program"]) == {"flash4"}
    _, found = imported(data / "experiment2.xml")
    assert found == {"PAPI_MEM_WCY": 3.4535e9}


def test_sums_over_threads_are_counters_and_what_is_not_written_is_zero(tmp_path):
    experiment(tmp_path)
    assert format_of(tmp_path) == format_of(tmp_path / "experiment.xml") == "hpctoolkit"
    table, found = imported(tmp_path, system="ruby")
    assert found == {
        "CPUTIME (usec)": 3.5e6,
        "instructions": 1.2e9,
        "PAPI_BR_INS": 3e8,
        "PAPI_L3_TCM": 0,
        "control_ratio": 0.25,
    }
    assert set(table.frame["program"]) == {"cpi"}
    assert set(table.frame["exactness"]) == {"sampled"}


def test_the_time_is_that_of_the_longest_thread(tmp_path):
    experiment(tmp_path)
    of_thread(tmp_path, "1.cpi-000000-000", 1.5e6, 7.0)
    of_thread(tmp_path, "1.cpi-000001-000", 2e6, 8.0)
    assert imported(tmp_path)[1]["seconds"] == pytest.approx(2.0)


def test_executions_with_other_ranks_are_other_runs_and_the_same_again_is_a_repeat(tmp_path):
    for name, ranks in (("two", 2), ("again", 2), ("four", 4)):
        (tmp_path / name).mkdir()
        experiment(tmp_path / name)
        for rank in range(ranks):
            for thread in range(2):
                of_thread(tmp_path / name, f"1.cpi-{rank:06}-{thread:03}-a8c00270-4711-0", 1e6, 1.0)
    paths = [tmp_path / name for name in ("two", "again", "four")]
    frame = import_files(paths, ImportOptions()).frame
    found = frame.group_by("size").agg(pl.col("repeat").n_unique()).rows()
    assert sorted(found) == [("ranks=2 threads=4", 2), ("ranks=4 threads=8", 1)]


def test_without_files_of_threads_the_statistics_say_how_many_there_were(tmp_path):
    table, _ = imported(experiment(tmp_path))
    assert set(table.frame["size"]) == {"threads=2"}
    table, _ = imported(tmp_path, size="-i 30")
    assert set(table.frame["size"]) == {"-i 30"}


def test_a_sum_over_threads_is_a_time_only_where_a_mapping_says_so(tmp_path):
    experiment(tmp_path)
    assert "seconds" not in imported(tmp_path)[1]
    mapping = NameMap({}, {}, {"CPUTIME (usec)": 1e-6})
    assert imported(tmp_path, mapping=mapping)[1]["seconds"] == 3.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (XML[:-60], r"experiment\.xml:\d+:\d+: not XML"),
        (XML.replace('"3.5e+06"', '"much"'), r"experiment\.xml:1: metric 2 is 'much', which is no number"),
        (
            XML.replace("SecCallPathProfileData", "Other"),
            r"experiment\.xml:1: it has no profile of call paths",
        ),
        (XML.replace("<M n", "<N n"), r"experiment\.xml:1: its root has no inclusive metric$"),
        (
            XML.replace("<M n", "<N n").replace('version="2.0"', 'version="4.0"'),
            r"no inclusive metric: this version keeps them in another file; `hpcprof` since 2022 writes meta\.db",
        ),
    ],
)
def test_a_malformed_experiment_is_told(tmp_path, text, problem):
    with pytest.raises(MalformedInput, match=problem):
        imported(experiment(tmp_path, text))


@pytest.mark.parametrize("content", [b"", b"HPCPROF-metricdb__00.10l" + bytes(24), b"x" * 40])
def test_a_malformed_file_of_a_thread_is_told(tmp_path, content):
    experiment(tmp_path)
    (tmp_path / "1.cpi-000000-000.metric-db").write_bytes(content)
    with pytest.raises(MalformedInput, match=r"000\.metric-db: not the metrics of a thread"):
        imported(tmp_path)


def test_a_folder_of_something_else_is_no_database(tmp_path):
    with pytest.raises(UnreadableFile, match=r"neither experiment.xml nor meta.db"):
        imported(tmp_path)


class Sections:
    """A file of version 4 that is being written: what was put where."""

    def __init__(self, kind, sections):
        self.content = bytearray(b"HPCTOOLKIT" + kind + b"\4\0" + bytes(16 * sections))

    def put(self, content):
        self.content += bytes(-len(self.content) % 8)
        at = len(self.content)
        self.content += content
        return at

    def text(self, text):
        return self.put(text.encode() + b"\0")

    def begin(self, number, size):
        """Begin a section with room for its header."""
        struct.pack_into("<Q", self.content, 24 + 16 * number, self.put(bytes(size)))

    def end(self, number, form, *values):
        """Write a section's header."""
        (at,) = struct.unpack_from("<Q", self.content, 24 + 16 * number)
        struct.pack_into(form, self.content, at, *values)
        struct.pack_into("<Q", self.content, 16 + 16 * number, len(self.content) - at)


def newer(folder, metrics, threads, *, squares=True):
    """A database of version 4 by its description: the program `loops`, whose first thread is the main one.

    metrics: their names; threads: each one's value of each metric. Besides its sum a metric has one that leaves
    calls out and, as `hpcprof -M stats` writes it, a sum of squares, neither of which is a total.
    """
    meta = Sections(b"meta", 8)
    meta.begin(0, 16)
    meta.end(0, "<QQ", meta.text("loops"), meta.text("about"))
    meta.begin(2, 32)
    function, execution = (
        meta.put(struct.pack("<QBB6x", meta.text(name), kind, 0))
        for name, kind in (("function", 3), ("execution", 2))
    )
    plain, squared = meta.text("$$"), meta.text("($$^2)")
    described = b""
    for number, name in enumerate(metrics):
        first = 8 * number
        instances = meta.put(struct.pack("<QH6xQH6x", function, first, execution, first + 1))
        summed = [(function, plain, first), (execution, plain, first + 1), (execution, squared, first + 2)]
        summed = summed if squares else summed[:2]
        summaries = meta.put(b"".join(struct.pack("<QQBxH4x", *each[:2], 0, each[2]) for each in summed))
        described += struct.pack("<QQQHH4x", meta.text(name), instances, summaries, 2, len(summed))
    meta.end(2, "<QIBBBxQHB", meta.put(described), len(metrics), 32, 16, 24, function, 2, 16)
    meta.begin(3, 16)
    main = struct.pack("<QQIH2xQ", 0, 0, 1, 1, meta.text("main thread"))
    other = struct.pack("<QQIH2xQ", 0, 0, 2, 2, meta.text("application thread"))
    meta.end(3, "<QHB", meta.put(main + other), 2, 32)
    (folder / "meta.db").write_bytes(meta.content + b"_meta.db")

    profile = Sections(b"prof", 2)

    def block(contexts):
        """A profile of {context: {metric: value}}."""
        values, starts = b"", b""
        for context, found in contexts.items():
            starts += struct.pack("<IQ", context, len(values) // 10)
            values += b"".join(struct.pack("<Hd", *pair) for pair in found.items() if pair[1])
        return struct.pack(
            "<QQI4xQ", len(values) // 10, profile.put(values), len(contexts), profile.put(starts)
        )

    def summary(part):
        by_metric = list(zip(*part, strict=True))
        return {8 * number + 1: sum(values) for number, values in enumerate(by_metric)} | {
            8 * number + 2: sum(value * value for value in values) for number, values in enumerate(by_metric)
        }

    def of_one(values):
        return {8 * number + 1: value for number, value in enumerate(values)}

    whole = {0: dict(sorted(summary(threads).items())), 1: dict(sorted(summary(threads[:1]).items()))}
    blocks = struct.pack("<32sQI4x", block(whole), 0, 1)
    for context, values in enumerate(threads, start=1):
        blocks += struct.pack("<32sQI4x", block({0: of_one(values), min(context, 2): of_one(values)}), 0, 0)
    profile.begin(0, 16)
    profile.end(0, "<QIB", profile.put(blocks), 1 + len(threads), 48)
    (folder / "profile.db").write_bytes(profile.content + b"_prof.db")
    (folder / "cct.db").write_bytes(b"HPCTOOLKITctxt\4\0" + bytes(16) + b"__ctx.db")
    return folder


def test_a_newer_database_adds_up_all_threads_and_takes_the_longest_time(tmp_path):
    newer(
        tmp_path,
        ["CPUTIME (sec)", "PAPI_TOT_INS", "GXCOPY:D2H (B)", "REALTIME (sec)"],
        [[1.0, 4e9, 0, 1.5], [1.25, 3e9, 0, 1.375]],
    )
    assert format_of(tmp_path) == format_of(tmp_path / "meta.db") == "hpctoolkit"
    table, found = imported(tmp_path)
    assert found == {
        "CPUTIME (sec)": 2.25,
        "instructions": 7e9,
        "GXCOPY:D2H (B)": 0,
        "REALTIME (sec)": 2.875,
        "seconds": 1.5,
    }
    assert set(table.frame["program"]) == {"loops"}
    assert set(table.frame["size"]) == {"threads=2"}


def test_hatchet_reads_the_same_of_the_main_thread(tmp_path):
    hatchet = pytest.importorskip("hatchet", reason="hatchet is not installed")
    newer(tmp_path, ["CPUTIME (sec)", "PAPI_TOT_INS"], [[1.25, 4e9]], squares=False)
    frame = hatchet.GraphFrame.from_hpctoolkit_latest(str(tmp_path), metric_names=["time", "papi_tot_ins"])
    _, found = imported(tmp_path)
    (theirs,) = frame.dataframe.to_dict("records")
    assert (theirs["time (inc)"], theirs["papi_tot_ins (inc)"]) == (1.25, 4e9)
    assert (found["CPUTIME (sec)"], found["instructions"]) == (1.25, 4e9)


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("meta.db", lambda content: content[:200], r"meta\.db: not a whole file of HPCToolkit"),
        ("meta.db", lambda content: b"", r"meta\.db: not a whole file of HPCToolkit"),
        ("profile.db", lambda content: content[:100], r"profile\.db: not a whole file of HPCToolkit"),
        (
            "meta.db",
            lambda content: content[:14] + b"\5" + content[15:],
            r"of version 5, and only 4 can be read",
        ),
        ("profile.db", lambda content: b"HPCTOOLKITtrce" + content[14:], r"it starts with b'HPCTOOLKITtrce'"),
        ("profile.db", lambda content: content[:24] + b"\xff" * 8 + content[32:], r"not a whole file"),
    ],
)
def test_a_malformed_newer_database_is_told(tmp_path, file, change, problem):
    path = newer(tmp_path, ["CPUTIME (sec)"], [[1.0]]) / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(MalformedInput, match=problem):
        imported(tmp_path)


def test_a_newer_database_without_its_profiles_cannot_be_read(tmp_path):
    (newer(tmp_path, ["CPUTIME (sec)"], [[1.0]]) / "profile.db").unlink()
    with pytest.raises(UnreadableFile, match=r"profile\.db: No such file"):
        imported(tmp_path)

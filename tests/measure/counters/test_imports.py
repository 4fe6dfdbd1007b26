"""Files of other tools: each format as its tool writes it, and what is said when a file is not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.counters.imports import ImportOptions, NameMap, format_of, import_files, read_map

FILES = Path(__file__).parent / "files"
"Written by the tools themselves; the README beside them says how."

PERF = """# started on Sun Nov 15 12:00:00 2026

{"counter-value" : "2277316312.000000", "unit" : "", "event" : "instructions:u", "event-runtime" : 460000000, "pcnt-running" : 100.00, "metric-value" : 2.1, "metric-unit" : "insn per cycle"}
{"counter-value" : "260000000.000000", "unit" : "", "event" : "branches:u", "event-runtime" : 300000000, "pcnt-running" : 66.60, "metric-value" : 0.0, "metric-unit" : ""}
{"counter-value" : "26000000.000000", "unit" : "", "event" : "branch-misses:u", "event-runtime" : 300000000, "pcnt-running" : 66.60, "metric-value" : 10.0, "metric-unit" : "of all branches"}
{"counter-value" : "<not supported>", "unit" : "", "event" : "LLC-loads:u", "event-runtime" : 0, "pcnt-running" : 100.00, "metric-value" : 0.0, "metric-unit" : ""}
{"counter-value" : "11342.000000", "unit" : "", "event" : "page-faults:u", "event-runtime" : 460000000, "pcnt-running" : 100.00, "metric-value" : 24.6, "metric-unit" : "K/sec"}
{"counter-value" : "460000000.000000", "unit" : "ns", "event" : "duration_time", "event-runtime" : 460000000, "pcnt-running" : 100.00, "metric-value" : 0.0, "metric-unit" : ""}
"""

PAPI = """{
  "papi_version": "7.0.0.0",
  "cpu_info": "Some Processor",
  "max_cpu_rate_mhz": "3900",
  "min_cpu_rate_mhz": "800",
  "event_definitions": {
    "PAPI_TOT_INS": {"component": "0", "type": "delta"},
    "PAPI_BR_INS": {"component": "0", "type": "delta"}
  },
  "threads": {
    "0": {
      "regions": {
        "0": {"name": "solve", "parent_region_id": "-1", "cycles": "4000", "real_time_nsec": "2000000000",
              "PAPI_TOT_INS": "1000", "PAPI_BR_INS": "100"}
      }
    },
    "1": {
      "regions": {
        "0": {"name": "solve", "parent_region_id": "-1", "cycles": "3000", "real_time_nsec": "1500000000",
              "PAPI_TOT_INS": "600", "PAPI_BR_INS": "60"}
      }
    }
  }
}
"""

OLD_PAPI = """{"cpu in mhz":"3995",
 "threads":[{"id":"0","regions":[{"solve":{"region_count":"1","cycles":"50","PAPI_TOT_INS":"7"}}]}]}
"""

CALI = r"""__rec=node,id=12,attr=10,data=64,parent=3
__rec=node,id=14,attr=8,data=attribute.unit,parent=12
__rec=node,id=20,attr=14,data=sec,parent=5
__rec=node,id=21,attr=10,data=65,parent=20
__rec=node,id=22,attr=8,data=sum#time.duration,parent=21
__rec=node,id=23,attr=10,data=65,parent=1
__rec=node,id=24,attr=8,data=papi.PAPI_TOT_INS,parent=23
__rec=node,id=31,attr=10,data=268,parent=3
__rec=node,id=32,attr=8,data=region,parent=31
__rec=node,id=40,attr=10,data=1612,parent=3
__rec=node,id=41,attr=8,data=cluster,parent=40
__rec=node,id=42,attr=8,data=executablepath,parent=40
__rec=node,id=50,attr=32,data=main
__rec=ctx,ref=50,attr=22=24,data=0.25=500
__rec=node,id=51,attr=32,data=solve\,fast,parent=50
__rec=ctx,ref=51,attr=22=24,data=0.125=400
__rec=node,id=60,attr=41,data=quartz
__rec=node,id=61,attr=42,data=/opt/bin/laghos,parent=60
__rec=globals,ref=61
"""

NCU = """==PROF== Connected to process 19963 (/home/user/plain)
==PROF== Profiling "saxpy" - 0: 0%....50%....100% - 9 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","19963","plain","127.0.0.1","saxpy(float, float*)","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Command line profiler metrics","dram__bytes_read.sum","byte","1,048,576"
"0","19963","plain","127.0.0.1","saxpy(float, float*)","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","us","211.94"
"0","19963","plain","127.0.0.1","saxpy(float, float*)","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Command line profiler metrics","sm__throughput.avg","","n/a"
"1","19963","plain","127.0.0.1","saxpy(float, float*)","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","us","203.02"
==PROF== Disconnected from process 19963
"""

NCU_RAW = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","launch__grid_size"
"","","","","","","","","","","","msecond",""
"0","1","app","host","saxpy","1","7","(64, 1, 1)","(10, 1, 1)","0","9.0","1.5","10"
"""


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def imported(path, format="auto", **options):
    table = import_files([path], ImportOptions(**options), format)
    return table, {
        (row["kernel"], row["repeat"], row["counter"]): row["value"]
        for row in table.frame.iter_rows(named=True)
    }


def test_perf_stat_gives_events_ratios_and_a_time(tmp_path):
    path = written(tmp_path, "xz.json", PERF)
    assert format_of(path) == "perf"
    table, found = imported(path, program="xz", system="quartz")
    assert found["", 0, "instructions"] == 2277316312
    assert found["", 0, "branch_miss_ratio"] == pytest.approx(0.1)
    assert found["", 0, "control_ratio"] == pytest.approx(260000000 / 2277316312)
    assert found["", 0, "LLC-loads:u"] is None
    assert found["", 0, "page_faults"] == 11342
    assert found["", 0, "seconds"] == pytest.approx(0.46)
    exactness = dict(zip(table.frame["counter"], table.frame["exactness"], strict=True))
    assert exactness["branches:u"] == "sampled"
    assert exactness["instructions"] == "exact"
    assert set(table.frame["source"]) == {"perf-stat"}
    assert list(table.systems) == ["quartz"]


def test_a_real_file_of_perf_on_a_machine_without_counters_has_them_missing():
    table, found = imported(FILES / "perf-stat-xz.json", program="xz")
    assert found["", 0, "page_faults"] == 11342
    assert found["", 0, "seconds"] == pytest.approx(1.947510403)
    assert found["", 0, "task-clock"] == 553.814132
    for missing in ("instructions", "control_ratio", "branch_miss_ratio", "cache-misses"):
        assert found["", 0, missing] is None
    assert set(table.frame["exactness"]) == {"exact"}


def test_intervals_of_a_real_file_of_perf_are_added_up():
    lines = (FILES / "perf-stat-intervals.json").read_text().splitlines()
    faults = [float(line.split('"')[5]) for line in lines if '"page-faults"' in line]
    assert len(faults) == 5
    _, found = imported(FILES / "perf-stat-intervals.json", program="xz")
    assert found["", 0, "page_faults"] == sum(faults) == 8715


def test_a_region_that_a_real_file_of_papi_has_three_times_was_run_three_times():
    table, found = imported(FILES / "papi-rank.json", program="fill", system="here")
    assert [found["again", repeat, "page_faults"] for repeat in range(3)] == [485, 0, 0]
    assert found["inner", 0, "page_faults"] == 484
    assert found["fill", 0, "seconds"] == pytest.approx(0.032959751)
    assert found["again", 1, "seconds"] == pytest.approx(0.008975841)
    assert ("fill", 1, "seconds") not in found
    assert set(table.frame["kernel"]) == {"fill", "again", "inner"}


def test_papi_adds_threads_up_and_takes_the_longest_time(tmp_path):
    path = written(tmp_path, "rank_000000.json", PAPI)
    assert format_of(path) == "papi"
    _, found = imported(path, program="app")
    assert found["solve", 0, "instructions"] == 1600
    assert found["solve", 0, "control_ratio"] == pytest.approx(0.1)
    assert found["solve", 0, "seconds"] == 2.0


def test_papi_of_the_first_version_is_read_too(tmp_path):
    _, found = imported(written(tmp_path, "rank_000000.json", OLD_PAPI), program="app")
    assert found["solve", 0, "instructions"] == 7


def test_caliper_gives_regions_with_the_programs_own_name(tmp_path):
    path = written(tmp_path, "run.cali", CALI)
    assert format_of(path) == "caliper"
    table, found = imported(path)
    assert found["main", 0, "seconds"] == 0.25
    assert found["main/solve,fast", 0, "papi.PAPI_TOT_INS"] == 400
    assert set(table.frame["program"]) == {"laghos"}
    assert set(table.frame["system"]) == {"quartz"}


def test_caliper_is_read_as_its_own_reader_reads_it(tmp_path):
    reader = pytest.importorskip(
        "caliperreader", reason="Caliper's own reader is not installed"
    ).CaliperReader()
    path = written(tmp_path, "run.cali", CALI)
    reader.read(str(path))
    theirs = {"/".join(each["path"]): float(each["sum#time.duration"]) for each in reader.records}
    _, found = imported(path)
    assert {kernel: value for (kernel, _, name), value in found.items() if name == "seconds"} == theirs


def test_a_real_file_of_caliper_is_read_as_its_own_reader_reads_it(published):
    """A profile of LULESH; what was counted outside of all regions is left out."""
    reader = pytest.importorskip(
        "caliperreader", reason="Caliper's own reader is not installed"
    ).CaliperReader()
    path = published("CallFlow-1.1.1-py3-none-any.whl") / "data" / "caliper-cali" / "caliper-ex.cali"
    reader.read(str(path))
    theirs = {
        ("/".join(record["path"]), name): float(record[name])
        for record in reader.records
        if "path" in record
        for name in ("count", "sum#time.duration", "max#time.duration")
    }
    table, _ = imported(path)
    kept = table.frame.filter(
        table.frame["counter"].is_in(["count", "sum#time.duration", "max#time.duration"])
    )
    ours = {(kernel, name): value for kernel, name, value in kept.select("kernel", "counter", "value").rows()}
    assert len(ours) == 57
    assert ours == pytest.approx(theirs)


def test_names_can_be_mapped(tmp_path):
    map = written(tmp_path, "map.toml", '[counters]\n"papi.PAPI_TOT_INS" = "instructions"\n')
    _, found = imported(written(tmp_path, "run.cali", CALI), mapping=read_map(map))
    assert found["main", 0, "instructions"] == 500


def test_nsight_compute_gives_launches_as_repeats(tmp_path):
    path = written(tmp_path, "ncu.csv", NCU)
    assert format_of(path) == "ncu"
    _, found = imported(path, system="h200")
    kernel = "saxpy(float, float*)"
    assert found[kernel, 0, "dram__bytes_read.sum"] == 1048576
    assert found[kernel, 0, "sm__throughput.avg"] is None
    assert found[kernel, 0, "warp_blocks"] == 64
    assert found[kernel, 0, "seconds"] == pytest.approx(211.94e-6)
    assert found[kernel, 1, "seconds"] == pytest.approx(203.02e-6)


def test_the_raw_page_of_nsight_compute_has_a_line_of_units(tmp_path):
    _, found = imported(written(tmp_path, "raw.csv", NCU_RAW))
    assert found["saxpy", 0, "seconds"] == pytest.approx(1.5e-3)
    assert found["saxpy", 0, "warp_blocks"] == 10


def test_real_pages_of_nsight_compute_agree_about_the_same_kernels():
    """Both were written by ncu, of two runs of one program: what the kernels are is the same in both."""
    (_, details), (_, raw) = (
        imported(FILES / f"ncu-{page}.csv", system="h200") for page in ("details", "raw")
    )
    kernels = {kernel for kernel, _, _ in details}
    assert len(kernels) == 2
    assert kernels == {kernel for kernel, _, _ in raw}
    product = next(kernel for kernel in kernels if kernel.endswith("execute_kernel__5x_cublas"))
    assert details[product, 0, "seconds"] == pytest.approx(14_304e-9)
    assert raw[product, 0, "seconds"] == pytest.approx(details[product, 0, "seconds"], rel=0.2)
    assert details[product, 0, "Elapsed Cycles"] == 20_807
    assert raw[product, 0, "warp_blocks"] == 8 * 8 * 4


def test_nsight_compute_that_profiled_nothing_says_so(tmp_path):
    # What ncu 2025.3 leaves behind when the program ends before its first kernel.
    text = "==PROF== Trying to shutdown target application\n==WARNING== No kernels were profiled.\n"
    with pytest.raises(MalformedInput, match=r"ncu\.csv:1: it holds no table; write it with `ncu --csv"):
        imported(written(tmp_path, "ncu.csv", text), format="ncu")


def test_a_plain_table_has_a_row_for_each_run_or_for_each_value(tmp_path):
    wide = written(
        tmp_path, "wide.csv", "app,machine,n,time_ms,loads\nbfs,a,10,1.5,7\nbfs,b,10,3,\nbfs,a,10,2.5,9\n"
    )
    names = NameMap({}, {"program": "app", "system": "machine", "size": "n"}, {"time_ms": 1e-3})
    table, _ = imported(wide, mapping=names)
    times = table.times()
    assert times.systems == ("a", "b")
    assert times.seconds.tolist() == [[2e-3, 3e-3]]
    assert table.about(counters=["loads"], systems=["b"]).frame["value"].to_list() == [None]
    long = written(tmp_path, "long.csv", "program,counter,value\nbfs,instructions,10\nbfs,seconds,2\n")
    _, found = imported(long)
    assert found == {("", 0, "instructions"): 10, ("", 0, "seconds"): 2}


def test_files_about_the_same_run_are_repeats(tmp_path):
    first, second = written(tmp_path, "a.json", PERF), written(tmp_path, "b.json", PERF)
    table = import_files([first, second], ImportOptions(program="xz"))
    assert sorted(set(table.frame["repeat"])) == [0, 1]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", PERF + '{"counter-value" : "12\n', r"a\.json:9: not a line of `perf stat -j`"),
        ("a.json", PERF.replace("11342.000000", "many"), r"a\.json:7: the value of page-faults:u is 'many'"),
        ("a.json", PAPI[:-10], r"a\.json:\d+: not JSON"),
        ("a.json", PAPI.replace('"600"', '"lots"'), r"a\.json:20: not the output of PAPI"),
        ("a.cali", CALI.replace("data=0.125=400", "data=0.125"), r"a\.cali:16: .*2 attributes, 1 values"),
        ("a.cali", CALI.replace("__rec=globals", "__rec=other"), r"a\.cali:19: .*the kind 'other'"),
        ("a.csv", NCU.replace('"us","203.02"', '"us"'), r"a\.csv:7: 14 cells instead of 15"),
        (
            "a.csv",
            NCU.replace('"us","203.02"', '"miles","203.02"'),
            r"a\.csv:7: the unit of gpu__time_duration.sum",
        ),
        ("a.csv", "program,x\nbfs,1\nbfs,2,3\n", r"a\.csv:3: 3 cells instead of 2"),
        ("a.csv", "program,x\nbfs,1\nbfs,two\n", r"a\.csv:3: x is 'two', which is no number"),
        (
            "a.csv",
            "program,counter\nbfs,x\n",
            r"a\.csv:1: a table with a column of counters needs one of values",
        ),
    ],
)
def test_a_malformed_file_names_its_line_and_nothing_is_imported(tmp_path, name, text, problem):
    good = written(tmp_path, "good.json", PERF)
    with pytest.raises(MalformedInput, match=problem):
        import_files([good, written(tmp_path, name, text)], ImportOptions(program="p"))


def test_a_mapping_must_make_sense(tmp_path):
    with pytest.raises(InvalidSetting, match="more than 0 seconds"):
        ImportOptions(mapping=NameMap({}, {}, {"t": 0.0}))
    table = written(tmp_path, "t.csv", "a,b\n1,2\n")
    with pytest.raises(MalformedInput, match=r"there is no column 'app'; there are: a, b"):
        imported(table, mapping=NameMap({}, {"program": "app"}, {}))
    with pytest.raises(InvalidSetting, match="not 'machine'"):
        imported(table, mapping=NameMap({}, {"machine": "a"}, {}))
    with pytest.raises(UnreadableFile):
        imported(tmp_path / "absent.csv")

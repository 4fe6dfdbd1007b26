"""The CGO17 reader, on tables made here and on the published ones where they are."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from apportion.data.published.cgo17 import read, rows_of
from apportion.errors import MalformedInput, UnknownName, UnreadableFile

HEAD = ",benchmark,dataset,comp,rational,mem,localmem,coalesced,atomic,transfer,wgsize,oracle,runtime_cpu,runtime_gpu,src,seq"
IR = "define void @k() {\n  ret void\n}\n"


def dataset(folder: Path, rows: list[str], files: list[str]) -> Path:
    for name in ("nvidia.csv", "amd.csv"):
        (folder / name).write_text("\n".join([HEAD, *rows]) + "\n")
    with tarfile.open(folder / "kernels_ir.tar.gz", "w:gz") as archive:
        for name in files:
            member = tarfile.TarInfo(f"kernels_ir/{name}.ll")
            member.size = len(IR)
            archive.addfile(member, io.BytesIO(IR.encode()))
    return folder


def row(benchmark: str, dataset: str = "default", cpu: str = "3.0") -> str:
    return f"0,{benchmark},{dataset},10,2,4,1,3,0,4096,64,GPU,{cpu},1.0,kernel,[1]"


def test_a_rows_ir_has_its_benchmarks_name_or_that_with_the_datasets(tmp_path: Path) -> None:
    rows = [row("npb-3.3-CG-main_0", "A"), row("shoc-1.1.5-FFT-fft"), row("shoc-1.1.5-FFT-lost")]
    folder = dataset(tmp_path, rows, ["npb-3.3-CG-main_0_A", "shoc-1.1.5-FFT-fft"])
    found = list(read(folder))
    assert [example.name for example in found] == ["npb-3.3-CG-main_0-A", "shoc-1.1.5-FFT-fft-default"]
    assert rows_of(folder, "cgo17-amd") == 3
    first = found[0]
    assert (first.suite, first.application, first.kernel) == ("npb-3.3", "npb-3.3-CG", "main_0")
    assert (first.bytes_moved, first.work_group, first.cpu_share, first.device) == (4096, 64, 25.0, "gpu")
    assert (first.ir, first.counts["coalesced"]) == (IR, 3.0)


def test_what_is_no_number_is_named_with_its_line(tmp_path: Path) -> None:
    folder = dataset(tmp_path, [row("npb-3.3-CG-k", cpu="fast")], ["npb-3.3-CG-k"])
    with pytest.raises(MalformedInput, match=r"nvidia\.csv:2: npb-3\.3-CG-k: could not convert"):
        list(read(folder))


def test_an_unknown_suite_a_missing_column_and_a_missing_file_are_said(tmp_path: Path) -> None:
    folder = dataset(tmp_path, [row("spec-1-a-k")], ["spec-1-a-k"])
    with pytest.raises(MalformedInput, match="begins with the name of no suite"):
        list(read(folder))
    (folder / "nvidia.csv").write_text("benchmark\nx\n")
    with pytest.raises(MalformedInput, match="lacks the column 'atomic'"):
        list(read(folder))
    (folder / "kernels_ir.tar.gz").unlink()
    with pytest.raises(UnreadableFile, match="apportion data path cgo17"):
        list(read(folder))
    with pytest.raises(UnknownName, match="There are: cgo17-amd, cgo17-nvidia"):
        list(read(folder, "cgo17-intel"))


def test_the_published_tables_have_the_published_labels(shared_data: Path) -> None:
    nvidia = list(read(shared_data / "cgo17", "cgo17-nvidia"))
    amd = list(read(shared_data / "cgo17", "cgo17-amd"))
    assert len(nvidia) == len(amd) == 680
    assert len({example.source for example in nvidia}) == 247
    assert len({example.application for example in nvidia}) == 71
    assert Counter(example.share_class for example in nvidia) == {0: 108, 25: 170, 50: 244, 75: 155, 100: 3}
    assert Counter(example.share_class for example in amd) == {0: 67, 25: 121, 50: 169, 75: 234, 100: 89}
    assert sum(example.device == "gpu" for example in nvidia) == 387

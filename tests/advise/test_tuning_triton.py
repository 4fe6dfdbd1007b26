"""A Triton kernel of a user's, tuned in one call on a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

import apportion

triton = pytest.importorskip("triton", reason="triton is not installed")
tl = pytest.importorskip("triton.language")
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


@triton.jit
def row_sums(source, target, rows, columns, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(source + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 1)
    tl.store(target + row, total, mask=row < rows)


def test_a_triton_kernel_is_tuned_in_one_call(tmp_path: Path) -> None:
    rows, columns = 20_000, 1_000
    source = torch.rand(rows, columns, device="cuda")
    target = torch.zeros(rows, device="cuda")
    slow = {"BLOCK": 64, "COLUMNS": 16, "num_warps": 1}
    tuning = apportion.tune(
        row_sums,
        {"BLOCK": (1, 4, 16, 64), "COLUMNS": (16, 64, 256, 1024), "num_warps": (1, 2, 4, 8)},
        arguments=(source, target, rows, columns),
        grid=lambda one: (-(-rows // one["BLOCK"]),),
        budget=20,
        default=slow,
    )
    torch.testing.assert_close(target, source.sum(1), rtol=1e-4, atol=1e-2)
    assert tuning.speedup > 1.2
    assert tuning.best != slow
    tuning.write_page(tmp_path / "page.html")
    assert "row_sums" in (tmp_path / "page.html").read_text()
    print(tuning.best, tuning.speedup)

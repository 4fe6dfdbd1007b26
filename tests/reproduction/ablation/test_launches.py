"""What is known of a launch, on a kernel of the kind that CGO17's archive holds: compiled for a CPU, labels as comments."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.records import Example
from reproduction.ablation.launches import LAUNCH, launches_of

IR = """
define spir_kernel void @scale(float*, float*, i32) !kernel_arg_addr_space !4 {
  %4 = tail call i64 @_Z13get_global_idj(i32 0)
  %5 = trunc i64 %4 to i32
  %6 = icmp slt i32 %5, %2
  br i1 %6, label %7, label %12

; <label>:7:                                      ; preds = %3
  %8 = shl i64 %4, 32
  %9 = ashr exact i64 %8, 32
  %10 = getelementptr inbounds float, float* %0, i64 %9
  %11 = load float, float* %10, align 4
  %13 = getelementptr inbounds float, float* %1, i64 0
  store float %11, float* %13, align 4
  br label %12

; <label>:12:                                     ; preds = %7, %3
  ret void
}
!4 = !{i32 1, i32 3, i32 0}
"""
COUNTS = {"comp": 3.0, "rational": 1.0, "mem": 4.0, "localmem": 2.0, "coalesced": 1.0, "atomic": 0.0}


def launch_of(bytes_moved: int, kernel: str = "scale") -> dict[str, float]:
    example = Example("a", "s", "s-a", kernel, "", IR, bytes_moved, 64, 1.0, 1.0, COUNTS)
    return dict(zip(LAUNCH, launches_of([example])[0].tolist(), strict=True))


def test_bytes_are_counted_by_memory_and_by_how_neighbours_touch_them() -> None:
    found = launch_of(4096)
    assert found["each coalesced bytes"] > 0
    assert found["each local bytes"] > 0
    assert found["each private accesses"] == 0
    assert found["each strided bytes"] == found["each scattered bytes"] == 0
    assert found["published comp"] == pytest.approx(np.log1p(3))
    assert found["published together per access"] == pytest.approx(np.log1p(1 / 4))


def test_sums_over_the_range_grow_with_the_bytes_that_stand_for_it() -> None:
    less, more = launch_of(4096), launch_of(8192)
    assert more["all instructions"] - less["all instructions"] == pytest.approx(np.log(2), abs=1e-3)
    assert more["each instructions"] == less["each instructions"]


def test_a_kernel_under_another_name_is_the_one_that_the_module_has() -> None:
    assert launch_of(4096, "scale3") == launch_of(4096)

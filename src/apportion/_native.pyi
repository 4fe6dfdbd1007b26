"""What the native extension offers: program graphs from LLVM IR text, and the analyses over them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

def never_falls(numbers: NDArray[np.int64]) -> bool: ...
def range_of(numbers: NDArray[Any]) -> tuple[int, int]: ...

# Program graphs: native/llvm_bind.cpp.

def graph_of_text(
    source: bytes,
    *,
    root_text: str,
    module_name: str,
    only_function: str,
    one_pointer_level: bool,
    unnamed_types_by_address: bool,
    calls_through_everything: bool,
    type_nodes: bool,
    variable_per_definition: bool,
    recover_pointees: bool,
    full_text: bool,
) -> dict[str, Any] | tuple[str, int, int] | list[str]: ...

# The data-flow analyses: native/analysis_bind.cpp.

UNCOUNTABLE: int

class Analysis:
    def __init__(
        self,
        node_type: NDArray[np.uint8],
        node_text: NDArray[np.int32],
        node_full_text: NDArray[np.int32],
        node_function: NDArray[np.int32],
        edge_flow: NDArray[np.uint8],
        edge_position: NDArray[np.int32],
        edges: NDArray[np.int32],
        string_data: NDArray[np.uint8],
        string_offsets: NDArray[np.int64],
        analysis: str,
        mode: str,
    ) -> None: ...
    def eligible(self) -> NDArray[np.int32]: ...
    def run(
        self, roots: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]: ...
    @property
    def init_error(self) -> str: ...
    @property
    def failure(self) -> str: ...

# HLO modules: native/hlo.cpp.

def hlo_arrays(
    module: bytes, opcode_names: list[str]
) -> (
    str
    | tuple[bytes, NDArray[np.uint8], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], list[bytes]]
): ...

# Counting kernels: native/kernel_count_bind.cpp.

def kernel_symbols() -> dict[str, int]: ...
def count_kernel(
    entry: int,
    arguments: int,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    offset: tuple[int, ...],
    dimensions: int,
    groups: list[int],
    segment_sizes: list[int],
    branches: int,
    has_barrier: bool,
    regions: list[tuple[int, int, int]],
    most_instructions: int,
    stack_bytes: int,
) -> dict[str, Any]: ...

# Commands under ptrace: native/process_trace.cpp.

def trace_process(
    command: list[str], input: str, step: bool, most_steps: int, burst: int, gap_us: int
) -> dict[str, Any]: ...

# The control flow of kernels: native/simulate_bind.cpp.

CONTROL_OPERATIONS: list[str]
CONTROL_QUERIES: list[str]

def simulate_control(
    code: NDArray[np.int32],
    queries: NDArray[np.int32],
    values: NDArray[np.uint64],
    known: NDArray[np.uint8],
    weights: NDArray[np.int64],
    dimensions: int,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...],
    offset: tuple[int, ...],
    items: NDArray[np.uint64],
    budget: int,
    item_budget: int,
) -> tuple[list[int], list[int], int, int] | None: ...

# Schedules of jobs over systems: native/schedule_bind.cpp.

def schedule_jobs(
    in_order: bool,
    arrival: NDArray[np.float64],
    width: NDArray[np.int64],
    truth: NDArray[np.float64],
    predicted: NDArray[np.float64],
    slots: list[int],
    **options: Any,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.uint8],
    float,
    int,
    float,
    int,
]: ...
def least_completions(seconds: NDArray[np.float64], age: NDArray[np.float64]) -> NDArray[np.int64]: ...
def run_rounds(
    arrival: NDArray[np.float64],
    width: NDArray[np.int64],
    steps: NDArray[np.int64],
    speed: NDArray[np.float64],
    slots: list[int],
    allocate: Callable[[float, NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    order: Callable[[list[int]], list[int]] | None = ...,
    *,
    seconds: float = ...,
    between_allocations: float = ...,
    fill: bool = ...,
    drop: bool = ...,
) -> tuple[
    NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8], int, int, int
]: ...

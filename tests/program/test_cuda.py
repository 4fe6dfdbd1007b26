"""CUDA and HIP become IR like that of OpenCL C, without a toolkit."""

import json
from pathlib import Path

import pytest

from apportion.advise.describe import describe
from apportion.cli import main
from apportion.errors import CompileError, InvalidSetting, MalformedInput
from apportion.program import cuda, graph_of
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.features import features_of
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source

SAXPY = """
__global__ void saxpy(int n, float a, const float *__restrict__ x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + sqrtf(y[i]);
}
"""
SAXPY_OPENCL = """
kernel void saxpy(int n, float a, global const float *restrict x, global float *y) {
  int i = get_global_id(0);
  if (i < n) y[i] = a * x[i] + sqrt(y[i]);
}
"""
MATMUL = """
#include <cuda_runtime.h>
constexpr int TILE = 16;
__global__ void matmul(const float *a, const float *b, float *c, int n) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n / TILE; t++) {
    as[threadIdx.y][threadIdx.x] = a[row * n + t * TILE + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < TILE; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
"""
REDUCE = """
__constant__ float weights[16];
extern "C" __global__ void __launch_bounds__(256) reduce(const float4 *x, float *out, int n) {
  __shared__ float part[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = i < n ? x[i] : make_float4(0.f, 0.f, 0.f, 0.f);
  part[threadIdx.x] = v.x + v.y + v.z + v.w * weights[i & 15];
  __syncthreads();
  for (int s = blockDim.x / 2; s >= 32; s >>= 1) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  float sum = part[threadIdx.x];
  for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}
"""
TEMPLATE = """
struct Params { float alpha; int n; };
template <class T> __global__ void scale(T *x, Params p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) x[i] *= p.alpha;
}
template __global__ void scale<float>(float *, Params);
"""


def compiled(text: str, language: str = "cuda") -> str:
    return ir_of(Source(text, language, f"kernel.{language}"))


@pytest.mark.parametrize("language", ["cuda", "hip"])
def test_a_saxpy_is_the_one_of_opencl(language: str) -> None:
    ir = compiled(SAXPY, language)
    assert kernels_of(ir) == ["saxpy"]
    signature = signature_of(ir)
    assert [(each.name, each.type, each.space) for each in signature.arguments] == [
        ("n", "int", "value"), ("a", "float", "value"), ("x", "float*", "global"), ("y", "float*", "global"),
    ]  # fmt: skip
    ours = features_of(graph_of(Source(SAXPY, language)))
    theirs = features_of(graph_of(Source(SAXPY_OPENCL, "opencl"), compile=CompileOptions()))
    calls = {
        name: count for name, count in theirs.items() if "get_" in name or "load" in name or "store" in name
    }
    assert calls
    assert {name: ours.get(name, 0) for name in calls} == pytest.approx(calls, rel=0.1)  # of 15, of 14


def test_the_names_that_hip_had_first_are_known() -> None:
    text = """
    #include "hip/hip_runtime.h"
    __global__ void scale(float *x, int n) {
      HIP_DYNAMIC_SHARED(float, kept)
      int i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
      kept[hipThreadIdx_x] = x[i];
      __syncthreads();
      if (i < n) x[i] = kept[hipBlockDim_x - 1 - hipThreadIdx_x] * hipGridDim_x;
    }
    void launch(float *x, int n) { hipLaunchKernelGGL(HIP_KERNEL_NAME(scale), dim3(n / 64), dim3(64), 256, 0, x, n); }
    """
    assert kernels_of(ir_of(Source(text, "hip", "scale.hip"))) == ["scale"]


def test_what_a_kernel_does_to_its_arguments_is_found() -> None:
    access = accesses_of(compiled(SAXPY))["saxpy"]
    assert [(use.reads, use.writes, use.merge) for use in access.arguments[2:]] == [
        (True, False, "none"), (True, True, "slice"),
    ]  # fmt: skip


def test_shared_memory_is_local_memory_and_a_barrier_a_barrier() -> None:
    ir = compiled(MATMUL)
    assert "load float, ptr addrspace(3)" in ir
    assert "load float, ptr addrspace(1)" in ir
    assert "addrspacecast" not in ir.partition("define ")[2]
    assert ir.count("call spir_func void @_Z7barrierj") == 2
    assert graph_of(Source(MATMUL, "cuda", "m.cu")).nodes > 50


def test_a_reduction_with_shuffles_vectors_constants_and_an_atomic_compiles() -> None:
    ir = compiled(REDUCE)
    assert "sub_group_shuffle_down" in ir
    assert "atomicrmw fadd ptr addrspace(1)" in ir
    kinds = [(each.name, each.type) for each in signature_of(ir).arguments]
    assert kinds == [("x", "float4*"), ("out", "float*"), ("n", "int")]
    assert graph_of(Source(REDUCE, "cuda", "r.cu")).nodes > 50


def test_a_templates_instance_has_the_templates_name_and_its_structure() -> None:
    signature = signature_of(compiled(TEMPLATE))
    assert signature.name == "scale"
    assert [(each.type, each.space, each.element_bytes) for each in signature.arguments] == [
        ("float*", "global", 4), ("Params", "value", 8),
    ]  # fmt: skip


def test_instances_of_one_template_are_told_apart_by_its_arguments() -> None:
    two = TEMPLATE + "template __global__ void scale<double>(double *, Params);\n"
    assert kernels_of(compiled(two)) == ["scale.float", "scale.double"]
    assert cuda.instance_name("_Z4tileILi16EPfEvPT0_") == "tile.16.floatp"


HOST_IN_C = """
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
template <class T, int N> __global__ void scale(T *x, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= a * N;
}
__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
int main(int argc, char **argv) {
  float *a, *b, *c, *h = (float *)malloc(4096);
  cudaError_t failed = cudaMalloc((void **)&a, 4096);
  if (failed != cudaSuccess) { fprintf(stderr, "%s\\n", cudaGetErrorString(failed)); exit(EXIT_FAILURE); }
  cudaMalloc(&b, 4096); cudaMalloc(&c, 4096);
  cudaMemcpy(a, h, 4096, cudaMemcpyHostToDevice);
  add<<<4, 256>>>(a, b, c, 1024);
  scale<float, 3><<<dim3(4), dim3(256)>>>(a, 2.f, 1024);
  cudaDeviceSynchronize();
  return 0;
}
"""
HOST_IN_CPP = """
#include <iostream>
#include <vector>
#include "helper_cuda.h"
using namespace std;
#define KERNEL __global__ void
namespace app {
struct Box { float low, high; };
__constant__ float weights[4];
__device__ float twice(float x) { return 2 * x; }
template <int N> KERNEL grow(Box *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i].high += twice(weights[i & 3]) * N;
}
std::vector<float> kept;
#ifdef FAST
void prepare() { kept.push_back(1); }
#endif
template <class T> void all(vector<T> &x) { for (auto &each : x) cout << each << "}" << endl; /* { */ }
}
int main() {
  thrust::device_vector<app::Box> boxes(100);
  app::grow<4><<<1, 100>>>(boxes.data(), 100);
}
"""


def test_a_file_with_its_host_code_gets_in() -> None:
    assert kernels_of(compiled(HOST_IN_C)) == ["add", "scale"]
    hip = HOST_IN_C.replace("cuda", "hip").replace("hip_runtime.h", "hip/hip_runtime.h")
    assert kernels_of(
        compiled(hip.replace("add<<<4, 256>>>(", "hipLaunchKernelGGL(add, 4, 256, 0, 0, "), "hip")
    )


def test_host_code_that_needs_other_libraries_is_left_out_and_launched_instances_stay() -> None:
    ir = compiled(HOST_IN_CPP)
    assert kernels_of(ir) == ["grow"]
    assert "vector" not in ir
    wrong = HOST_IN_CPP.replace("twice(weights", "thrice(weights")
    with pytest.raises(CompileError, match="thrice") as caught:  # of the device, at its own line
        compiled(wrong)
    assert caught.value.line == 1 + wrong[: wrong.index("thrice(weights")].count("\n")


def test_a_template_that_nobody_launches_asks_for_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    path.write_text(TEMPLATE.replace("template __global__ void scale<float>(float *, Params);", ""))
    with pytest.raises(MalformedInput, match="its kernels are templates, and nothing tells their arguments"):
        describe(path)


@pytest.mark.parametrize(
    ("mangled", "types"),
    [
        ("_Z5saxpyifPKfPf", ["int", "float", "float*", "float*"]),
        ("_Z1fPfS_", ["float*", "float*"]),
        ("_Z1fPK6float4S1_", ["float4*", "float4*"]),
        ("_Z1gIfEvPT_PKS0_i1P", ["float*", "float*", "int", "P"]),
        ("_Z4tileILi16EfEvPT0_", ["float*"]),
        ("_Z1fv", []),
        ("_ZN2ns1fEPf", None),
        ("_Z1fDv4_f", None),
        ("reduce", None),
    ],
)
def test_a_mangled_name_tells_the_types(mangled: str, types: list[str] | None) -> None:
    assert cuda.parameters_of(mangled) == types


def test_what_was_assumed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    assert cuda.ASSUMED in describe(path).warnings


def test_an_error_has_its_place() -> None:
    with pytest.raises(CompileError) as caught:
        compiled("__global__ void f(float *x) {\n  x[0] = nothing;\n}\n")
    assert (caught.value.file, caught.value.line) == ("kernel.cuda", 2)


def test_a_header_out_of_reach_stays_out_of_reach() -> None:
    with pytest.raises(CompileError, match="may not be included"):
        compiled('#include "/etc/passwd"\n' + SAXPY)


def test_predict_answers_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "matmul.cu"
    path.write_text(MATMUL)
    with pytest.raises(SystemExit) as left:
        main(["predict", str(path), "--local-size", "256", "--bytes", "1048576", "--json"])
    assert left.value.code == 0
    assert 0 <= json.loads(capsys.readouterr().out)["cpu_share"] <= 1


def test_running_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    with pytest.raises(InvalidSetting, match="CUDA, which is read but not run"):
        Source.read(path, "opencl")

// What a CUDA or HIP kernel may use without a toolkit: declarations of apportion's own, read before a source.
// Queries and math functions carry the names that OpenCL C gives them, so that one analysis reads both.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define CUDART_PI_F 3.141592654f
#define CUDART_INF_F __builtin_inff()
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define M_PI 3.14159265358979323846
#define APPORTION_BOTH __host__ __device__

typedef __SIZE_TYPE__ size_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

// Queries: the functions of OpenCL C that answer them.
__device__ __attribute__((const)) size_t get_local_id(uint);
__device__ __attribute__((const)) size_t get_group_id(uint);
__device__ __attribute__((const)) size_t get_local_size(uint);
__device__ __attribute__((const)) size_t get_num_groups(uint);
__device__ __attribute__((convergent)) void barrier(uint);
__device__ __attribute__((convergent)) void mem_fence(uint);

#define APPORTION_VECTORS(type, name, bytes) \
  struct name##1 { type x; }; \
  struct __attribute__((aligned(2 * bytes))) name##2 { type x, y; }; \
  struct name##3 { type x, y, z; }; \
  struct __attribute__((aligned((4 * bytes) > 16 ? 16 : (4 * bytes)))) name##4 { type x, y, z, w; }; \
  APPORTION_BOTH inline name##1 make_##name##1(type x) { return {x}; } \
  APPORTION_BOTH inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  APPORTION_BOTH inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  APPORTION_BOTH inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
APPORTION_VECTORS(signed char, char, 1)
APPORTION_VECTORS(unsigned char, uchar, 1)
APPORTION_VECTORS(short, short, 2)
APPORTION_VECTORS(unsigned short, ushort, 2)
APPORTION_VECTORS(int, int, 4)
APPORTION_VECTORS(unsigned int, uint, 4)
APPORTION_VECTORS(long, long, 8)
APPORTION_VECTORS(unsigned long, ulong, 8)
APPORTION_VECTORS(long long, longlong, 8)
APPORTION_VECTORS(unsigned long long, ulonglong, 8)
APPORTION_VECTORS(float, float, 4)
APPORTION_VECTORS(double, double, 8)

struct dim3 {
  uint x, y, z;
  APPORTION_BOTH constexpr dim3(uint x = 1, uint y = 1, uint z = 1) : x(x), y(y), z(z) {}
  APPORTION_BOTH constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define APPORTION_PLACE(type, query) \
  struct type { \
    __declspec(property(get = get_x)) uint x; \
    __declspec(property(get = get_y)) uint y; \
    __declspec(property(get = get_z)) uint z; \
    __device__ uint get_x() const { return query(0); } \
    __device__ uint get_y() const { return query(1); } \
    __device__ uint get_z() const { return query(2); } \
    __device__ operator uint3() const { return {x, y, z}; } \
    __device__ operator dim3() const { return dim3(x, y, z); } \
  };
APPORTION_PLACE(apportion_thread, get_local_id)
APPORTION_PLACE(apportion_block, get_group_id)
APPORTION_PLACE(apportion_block_size, get_local_size)
APPORTION_PLACE(apportion_grid_size, get_num_groups)
extern const __device__ __attribute__((weak)) apportion_thread threadIdx;
extern const __device__ __attribute__((weak)) apportion_block blockIdx;
extern const __device__ __attribute__((weak)) apportion_block_size blockDim;
extern const __device__ __attribute__((weak)) apportion_grid_size gridDim;
constexpr int warpSize = 32;

// Barriers and fences.
__device__ inline __attribute__((convergent)) void __syncthreads() { barrier(1); }
__device__ inline __attribute__((convergent)) void __syncwarp(uint = 0xffffffff) { barrier(1); }
__device__ inline void __threadfence() { mem_fence(2); }
__device__ inline void __threadfence_block() { mem_fence(1); }
__device__ inline void __threadfence_system() { mem_fence(2); }

// Exchanges inside a warp: declared under the names of OpenCL's sub-groups; masks and widths are left out.
#define APPORTION_SHUFFLES(type) \
  __device__ __attribute__((convergent)) type sub_group_shuffle(type, uint); \
  __device__ __attribute__((convergent)) type sub_group_shuffle_up(type, uint); \
  __device__ __attribute__((convergent)) type sub_group_shuffle_down(type, uint); \
  __device__ __attribute__((convergent)) type sub_group_shuffle_xor(type, uint); \
  __device__ inline type __shfl_sync(uint, type v, int n, int = 32) { return sub_group_shuffle(v, n); } \
  __device__ inline type __shfl_up_sync(uint, type v, uint n, int = 32) { return sub_group_shuffle_up(v, n); } \
  __device__ inline type __shfl_down_sync(uint, type v, uint n, int = 32) { return sub_group_shuffle_down(v, n); } \
  __device__ inline type __shfl_xor_sync(uint, type v, int n, int = 32) { return sub_group_shuffle_xor(v, n); } \
  __device__ inline type __shfl(type v, int n, int = 32) { return sub_group_shuffle(v, n); } \
  __device__ inline type __shfl_up(type v, uint n, int = 32) { return sub_group_shuffle_up(v, n); } \
  __device__ inline type __shfl_down(type v, uint n, int = 32) { return sub_group_shuffle_down(v, n); } \
  __device__ inline type __shfl_xor(type v, int n, int = 32) { return sub_group_shuffle_xor(v, n); }
APPORTION_SHUFFLES(int)
APPORTION_SHUFFLES(uint)
APPORTION_SHUFFLES(long)
APPORTION_SHUFFLES(ulong)
APPORTION_SHUFFLES(float)
APPORTION_SHUFFLES(double)
__device__ __attribute__((convergent)) int sub_group_any(int);
__device__ __attribute__((convergent)) int sub_group_all(int);
__device__ __attribute__((convergent)) uint sub_group_ballot(int);
__device__ inline int __any_sync(uint, int p) { return sub_group_any(p); }
__device__ inline int __all_sync(uint, int p) { return sub_group_all(p); }
__device__ inline uint __ballot_sync(uint, int p) { return sub_group_ballot(p); }

// Atomic operations, relaxed as CUDA's are.
#define APPORTION_ATOMICS(type) \
  __device__ inline type atomicAdd(type *p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicSub(type *p, type v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicMin(type *p, type v) { return __atomic_fetch_min(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicMax(type *p, type v) { return __atomic_fetch_max(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicAnd(type *p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicOr(type *p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicXor(type *p, type v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicExch(type *p, type v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
  __device__ inline type atomicCAS(type *p, type old, type v) { \
    __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return old; \
  }
APPORTION_ATOMICS(int)
APPORTION_ATOMICS(uint)
APPORTION_ATOMICS(long long)
APPORTION_ATOMICS(unsigned long long)
__device__ inline float atomicAdd(float *p, float v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
__device__ inline double atomicAdd(double *p, double v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }

// Math: the functions of OpenCL C, under C's names too.
#define APPORTION_MATH1(name) \
  APPORTION_BOTH __attribute__((const)) float name(float); \
  APPORTION_BOTH __attribute__((const)) double name(double); \
  APPORTION_BOTH inline float name##f(float x) { return name(x); }
#define APPORTION_MATH2(name) \
  APPORTION_BOTH __attribute__((const)) float name(float, float); \
  APPORTION_BOTH __attribute__((const)) double name(double, double); \
  APPORTION_BOTH inline float name##f(float x, float y) { return name(x, y); }
APPORTION_MATH1(sin) APPORTION_MATH1(cos) APPORTION_MATH1(tan) APPORTION_MATH1(asin) APPORTION_MATH1(acos)
APPORTION_MATH1(atan) APPORTION_MATH1(sinh) APPORTION_MATH1(cosh) APPORTION_MATH1(tanh) APPORTION_MATH1(exp)
APPORTION_MATH1(exp2) APPORTION_MATH1(exp10) APPORTION_MATH1(expm1) APPORTION_MATH1(log) APPORTION_MATH1(log2)
APPORTION_MATH1(log10) APPORTION_MATH1(log1p) APPORTION_MATH1(sqrt) APPORTION_MATH1(rsqrt) APPORTION_MATH1(cbrt)
APPORTION_MATH1(fabs) APPORTION_MATH1(floor) APPORTION_MATH1(ceil) APPORTION_MATH1(round) APPORTION_MATH1(trunc)
APPORTION_MATH1(rint) APPORTION_MATH1(erf) APPORTION_MATH1(erfc) APPORTION_MATH1(tgamma) APPORTION_MATH1(lgamma)
APPORTION_MATH2(pow) APPORTION_MATH2(fmin) APPORTION_MATH2(fmax) APPORTION_MATH2(fmod) APPORTION_MATH2(atan2)
APPORTION_MATH2(hypot) APPORTION_MATH2(copysign)
APPORTION_BOTH __attribute__((const)) float fma(float, float, float);
APPORTION_BOTH __attribute__((const)) double fma(double, double, double);
APPORTION_BOTH inline float fmaf(float x, float y, float z) { return fma(x, y, z); }
APPORTION_BOTH inline float abs(float x) { return fabs(x); }
APPORTION_BOTH inline double abs(double x) { return fabs(x); }
APPORTION_BOTH inline int abs(int x) { return x < 0 ? -x : x; }
__device__ __attribute__((const)) float native_sin(float);
__device__ __attribute__((const)) float native_cos(float);
__device__ __attribute__((const)) float native_exp(float);
__device__ __attribute__((const)) float native_log(float);
__device__ inline float __sinf(float x) { return native_sin(x); }
__device__ inline float __cosf(float x) { return native_cos(x); }
__device__ inline float __expf(float x) { return native_exp(x); }
__device__ inline float __logf(float x) { return native_log(x); }
__device__ inline float __powf(float x, float y) { return pow(x, y); }
__device__ inline float __fdividef(float x, float y) { return x / y; }
__device__ inline float __saturatef(float x) { return fmin(fmax(x, 0.0f), 1.0f); }
APPORTION_BOTH inline bool isnan(double x) { return __builtin_isnan(x); }
APPORTION_BOTH inline bool isinf(double x) { return __builtin_isinf(x); }
#define APPORTION_ORDER(type) \
  APPORTION_BOTH inline type min(type x, type y) { return y < x ? y : x; } \
  APPORTION_BOTH inline type max(type x, type y) { return x < y ? y : x; }
APPORTION_ORDER(int)
APPORTION_ORDER(uint)
APPORTION_ORDER(long)
APPORTION_ORDER(ulong)
APPORTION_ORDER(long long)
APPORTION_ORDER(unsigned long long)
APPORTION_BOTH inline float min(float x, float y) { return fmin(x, y); }
APPORTION_BOTH inline float max(float x, float y) { return fmax(x, y); }
APPORTION_BOTH inline double min(double x, double y) { return fmin(x, y); }
APPORTION_BOTH inline double max(double x, double y) { return fmax(x, y); }

// Bits and loads.
__device__ inline int __popc(uint x) { return __builtin_popcount(x); }
__device__ inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__device__ inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
__device__ inline int __ffs(int x) { return __builtin_ffs(x); }
__device__ inline int __mul24(int x, int y) { return x * y; }
__device__ inline uint __umul24(uint x, uint y) { return x * y; }
__device__ inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
__device__ inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
__device__ inline int __float2int_rn(float x) { return (int)rint(x); }
__device__ inline int __float2int_rd(float x) { return (int)floor(x); }
template <class T> __device__ inline T __ldg(const T *p) { return *p; }
#include "cuda_host.h"

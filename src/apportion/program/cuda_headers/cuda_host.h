// What host code beside kernels may call: declared so that it compiles, never run.
#pragma once

extern "C" {
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
void free(void *);
APPORTION_BOTH void *memcpy(void *, const void *, size_t);
APPORTION_BOTH void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
int strcmp(const char *, const char *);
int strncmp(const char *, const char *, size_t);
size_t strlen(const char *);
char *strcpy(char *, const char *);
char *strcat(char *, const char *);
void exit(int) __attribute__((noreturn));
void abort() __attribute__((noreturn));
int atoi(const char *);
long atol(const char *);
double atof(const char *);
int rand();
void srand(unsigned);
long time(long *);
char *getenv(const char *);
APPORTION_BOTH int printf(const char *, ...);
typedef struct apportion_file FILE;
extern FILE *stdout, *stderr, *stdin;
int fprintf(FILE *, const char *, ...);
int sprintf(char *, const char *, ...);
int snprintf(char *, size_t, const char *, ...);
int puts(const char *);
FILE *fopen(const char *, const char *);
int fclose(FILE *);
int fflush(FILE *);
int fscanf(FILE *, const char *, ...);
int sscanf(const char *, const char *, ...);
char *fgets(char *, int, FILE *);
size_t fread(void *, size_t, size_t, FILE *);
size_t fwrite(const void *, size_t, size_t, FILE *);
}
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
#define CLOCKS_PER_SEC 1000000L
#define assert(condition) ((void)(condition))
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef long clock_t;
extern "C" APPORTION_BOTH clock_t clock();

#define APPORTION_HOST(p) \
  typedef int p##Error_t; \
  typedef struct apportion_##p##_stream *p##Stream_t; \
  typedef struct apportion_##p##_event *p##Event_t; \
  enum p##MemcpyKind { \
    p##MemcpyHostToHost, p##MemcpyHostToDevice, p##MemcpyDeviceToHost, p##MemcpyDeviceToDevice, p##MemcpyDefault \
  }; \
  enum { p##Success, p##ErrorMemoryAllocation = 2, p##MemAttachGlobal = 1, p##HostAllocDefault = 0 }; \
  enum { p##FuncCachePreferNone, p##FuncCachePreferShared, p##FuncCachePreferL1, p##FuncCachePreferEqual }; \
  struct p##DeviceProp { \
    char name[256]; \
    size_t totalGlobalMem, sharedMemPerBlock, totalConstMem; \
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate, major, minor; \
    int multiProcessorCount, maxThreadsPerMultiProcessor, memoryClockRate, memoryBusWidth, l2CacheSize; \
    int integrated, canMapHostMemory, concurrentKernels; \
  }; \
  typedef p##DeviceProp p##DeviceProp_t; \
  extern "C" { \
  p##Error_t p##ConfigureCall(dim3, dim3, size_t = 0, p##Stream_t = 0); \
  unsigned __##p##PushCallConfiguration(dim3, dim3, size_t = 0, p##Stream_t = 0); \
  p##Error_t p##Free(void *); \
  p##Error_t p##FreeHost(void *); \
  p##Error_t p##Memcpy(void *, const void *, size_t, p##MemcpyKind); \
  p##Error_t p##MemcpyAsync(void *, const void *, size_t, p##MemcpyKind, p##Stream_t = 0); \
  p##Error_t p##Memset(void *, int, size_t); \
  p##Error_t p##MemsetAsync(void *, int, size_t, p##Stream_t = 0); \
  p##Error_t p##MemGetInfo(size_t *, size_t *); \
  p##Error_t p##DeviceSynchronize(); \
  p##Error_t p##ThreadSynchronize(); \
  p##Error_t p##DeviceReset(); \
  p##Error_t p##ThreadExit(); \
  p##Error_t p##GetLastError(); \
  p##Error_t p##PeekAtLastError(); \
  const char *p##GetErrorString(p##Error_t); \
  const char *p##GetErrorName(p##Error_t); \
  p##Error_t p##GetDeviceCount(int *); \
  p##Error_t p##GetDevice(int *); \
  p##Error_t p##SetDevice(int); \
  p##Error_t p##SetDeviceFlags(unsigned); \
  p##Error_t p##GetDeviceProperties(p##DeviceProp *, int); \
  p##Error_t p##StreamCreate(p##Stream_t *); \
  p##Error_t p##StreamDestroy(p##Stream_t); \
  p##Error_t p##StreamSynchronize(p##Stream_t); \
  p##Error_t p##EventCreate(p##Event_t *); \
  p##Error_t p##EventDestroy(p##Event_t); \
  p##Error_t p##EventRecord(p##Event_t, p##Stream_t = 0); \
  p##Error_t p##EventSynchronize(p##Event_t); \
  p##Error_t p##EventElapsedTime(float *, p##Event_t, p##Event_t); \
  } \
  template <class T> p##Error_t p##Malloc(T **, size_t); \
  template <class T> p##Error_t p##MallocManaged(T **, size_t, unsigned = 1); \
  template <class T> p##Error_t p##MallocHost(T **, size_t, unsigned = 0); \
  template <class T> p##Error_t p##HostAlloc(T **, size_t, unsigned = 0); \
  template <class T> p##Error_t p##MallocPitch(T **, size_t *, size_t, size_t); \
  template <class T> p##Error_t p##MemcpyToSymbol( \
      const T &, const void *, size_t, size_t = 0, p##MemcpyKind = p##MemcpyHostToDevice); \
  template <class T> p##Error_t p##MemcpyFromSymbol( \
      void *, const T &, size_t, size_t = 0, p##MemcpyKind = p##MemcpyDeviceToHost); \
  template <class T> p##Error_t p##FuncSetCacheConfig(T, int);
APPORTION_HOST(cuda)
APPORTION_HOST(hip)
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
  (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

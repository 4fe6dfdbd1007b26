// Blocked kernels whose tiles are arguments. Each call returns the nanoseconds that it took.
#include <stdint.h>
#include <string.h>
#include <time.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);  // the turns of other programs do not count
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int least(int a, int b) { return a < b ? a : b; }

static void product_block(const float *restrict a, const float *restrict b, float *restrict c, int N, int K,
                          int i0, int i1, int j0, int j1, int k0, int k1) {
    for (int i = i0; i < i1; i++) {
        float *restrict row = c + (size_t)i * N;
        int k = k0;
        for (; k + 3 < k1; k += 4) {
            const float *x = a + (size_t)i * K + k;
            const float *y = b + (size_t)k * N;
            for (int j = j0; j < j1; j++)
                row[j] += x[0] * y[j] + x[1] * y[N + j] + x[2] * y[2 * N + j] + x[3] * y[3 * N + j];
        }
        for (; k < k1; k++)
            for (int j = j0; j < j1; j++) row[j] += a[(size_t)i * K + k] * b[(size_t)k * N + j];
    }
}

// c (M, N) = max(a (M, K) @ b (K, N) + bias (N), 0), or without bias where there is none.
int64_t product(const float *a, const float *b, const float *bias, float *c, int M, int N, int K, int tm, int tn,
                int tk, int order) {
    int64_t start = now();
    memset(c, 0, sizeof(float) * (size_t)M * N);
    for (int i = 0; i < M; i += tm) {
        if (order)
            for (int k = 0; k < K; k += tk)
                for (int j = 0; j < N; j += tn)
                    product_block(a, b, c, N, K, i, least(i + tm, M), j, least(j + tn, N), k, least(k + tk, K));
        else
            for (int j = 0; j < N; j += tn)
                for (int k = 0; k < K; k += tk)
                    product_block(a, b, c, N, K, i, least(i + tm, M), j, least(j + tn, N), k, least(k + tk, K));
    }
    if (bias)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = c[(size_t)i * N + j] + bias[j];
                c[(size_t)i * N + j] = sum > 0 ? sum : 0;
            }
    return now() - start;
}

// y (N, M) from x (M, N).
int64_t transpose(const float *x, float *y, int M, int N, int tm, int tn, int order) {
    int64_t start = now();
    int outer = order ? N : M, inner = order ? M : N, outer_tile = order ? tn : tm, inner_tile = order ? tm : tn;
    for (int p = 0; p < outer; p += outer_tile)
        for (int q = 0; q < inner; q += inner_tile) {
            int i0 = order ? q : p, j0 = order ? p : q;
            int i1 = least(i0 + tm, M), j1 = least(j0 + tn, N);
            for (int i = i0; i < i1; i++)
                for (int j = j0; j < j1; j++) y[(size_t)j * M + i] = x[(size_t)i * N + j];
        }
    return now() - start;
}

// y (N) the sums of the columns of x (M, N).
int64_t column_sum(const float *x, float *y, int M, int N, int tm, int tn, int order) {
    int64_t start = now();
    memset(y, 0, sizeof(float) * (size_t)N);
    int outer = order ? N : M, inner = order ? M : N, outer_tile = order ? tn : tm, inner_tile = order ? tm : tn;
    for (int p = 0; p < outer; p += outer_tile)
        for (int q = 0; q < inner; q += inner_tile) {
            int i0 = order ? q : p, j0 = order ? p : q;
            int i1 = least(i0 + tm, M), j1 = least(j0 + tn, N);
            for (int i = i0; i < i1; i++)
                for (int j = j0; j < j1; j++) y[j] += x[(size_t)i * N + j];
        }
    return now() - start;
}

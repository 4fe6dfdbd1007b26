"""Triton kernels whose tiles a configuration chooses: products, attention, convolutions, reductions, maps.

Arrays are dense and row-major. Sizes are arguments, so that one binary serves every shape; what a
configuration chooses is constant: blocks of rows, columns and of the reduced dimension, how programs are
grouped, into how many the reduction is split.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Triton types a kernel's arguments itself, when it is launched.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _block_of(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a program's block: GROUP rows of blocks are walked column by column."""
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = program // (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    inside = program % (GROUP * columns)
    return group * GROUP + inside % height, inside // height


@triton.jit
def _gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def product(
    a, b, bias, residual, c, M, N, K,
    A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, BATCHED: tl.constexpr, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """c = a @ b, then the epilogue: 0 none, 1 gelu(· + bias), 2 relu(· + bias) + residual, 3 c + ·."""
    row, column = _block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    part = tl.program_id(1)
    if BATCHED:
        batch = tl.program_id(2).to(tl.int64)
        a += batch * M * K
        b += batch * K * N
        c += batch * M * N
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * BLOCK_K + tl.arange(0, BLOCK_K)
    # Rows and columns past the end read others' and are not stored: cheaper than a mask in the loop.
    inside_m, inside_n = m % M, n % N
    if A_TRANSPOSED:
        a_at, a_step = a + k[None, :] * M + inside_m[:, None], BLOCK_K * SPLIT * M
    else:
        a_at, a_step = a + inside_m[:, None] * K + k[None, :], BLOCK_K * SPLIT
    if B_TRANSPOSED:
        b_at, b_step = b + inside_n[None, :] * K + k[:, None], BLOCK_K * SPLIT
    else:
        b_at, b_step = b + k[:, None] * N + inside_n[None, :], BLOCK_K * SPLIT * N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(part * BLOCK_K, K, BLOCK_K * SPLIT):
        left = K - first
        lanes = tl.arange(0, BLOCK_K)
        x = tl.load(a_at, mask=lanes[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=lanes[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
        a_at += a_step
        b_at += b_step
    mask = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    if EPILOGUE == 1:
        total = _gelu(total + tl.load(bias + inside_n)[None, :])
    if EPILOGUE == 2:
        total = tl.maximum(total + tl.load(bias + inside_n)[None, :], 0.0)
        total += tl.load(residual + at, mask=mask, other=0.0)
    if EPILOGUE == 3:
        if SPLIT > 1:
            tl.atomic_add(c + at, total, mask=mask, sem="relaxed")
        else:
            tl.store(c + at, total + tl.load(c + at, mask=mask, other=0.0), mask=mask)
    else:
        tl.store(c + at, total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def gated_product(
    a, b, gate, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = silu(a @ gate) · (a @ b)."""
    row, column = _block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    inside_m, inside_n = m % M, n % N
    a_at = a + inside_m[:, None] * K + k[None, :]
    b_at = b + k[:, None] * N + inside_n[None, :]
    gate_at = gate + k[:, None] * N + inside_n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    opening = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        left = K - first
        x = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        total = tl.dot(x, tl.load(b_at, mask=k[:, None] < left, other=0.0), total)
        opening = tl.dot(x, tl.load(gate_at, mask=k[:, None] < left, other=0.0), opening)
        a_at += BLOCK_K
        b_at += BLOCK_K * N
        gate_at += BLOCK_K * N
    result = opening * tl.sigmoid(opening) * total
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], result.to(c.dtype.element_ty), mask=mask)


@triton.jit
def convolution(
    x, w, y, B, H, W, C, P, Q, N,
    STRIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """3 × 3, padded by 1, as a product: x (B, H, W, C), w (3, 3, C, N), y (B, P, Q, N)."""
    M = B * P * Q
    row, column = _block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    q, p, image = m % Q, (m // Q) % P, m // (P * Q)
    inside_n = n % N
    channels = tl.cdiv(C, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(9 * channels):
        tap = step // channels
        c = (step % channels) * BLOCK_K + tl.arange(0, BLOCK_K)
        h, v = p * STRIDE + tap // 3 - 1, q * STRIDE + tap % 3 - 1
        there = (h >= 0) & (h < H) & (v >= 0) & (v < W) & (m < M)
        x_at = x + ((image * H + h) * W + v)[:, None] * C + c[None, :]
        w_at = w + (tap * C + c)[:, None] * N + inside_n[None, :]
        tile = tl.load(x_at, mask=there[:, None] & (c[None, :] < C), other=0.0)
        total = tl.dot(tile, tl.load(w_at, mask=c[:, None] < C, other=0.0), total)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def attention(
    q, k, v, out, S,
    WIDTH: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """softmax(q kᵀ / √WIDTH) v for each head, never storing the scores; q, k, v are (heads, S, WIDTH)."""
    head = tl.program_id(1).to(tl.int64) * S * WIDTH
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    query = tl.load(q + head + m[:, None] * WIDTH + d[None, :], mask=m[:, None] < S, other=0.0)
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    scale = 1.4426950408889634 / (WIDTH**0.5)  # exp2 instead of exp
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, S) if CAUSAL else S
    for first in range(0, end, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        key = tl.load(k + head + n[None, :] * WIDTH + d[:, None], mask=n[None, :] < S, other=0.0)
        score = tl.dot(query, key) * scale
        live = n[None, :] < S
        if CAUSAL:
            live = live & (m[:, None] >= n[None, :])
        score = tl.where(live, score, float("-inf"))
        peak = tl.maximum(largest, tl.max(score, 1))
        shrink = tl.exp2(largest - peak)
        share = tl.exp2(score - peak[:, None])
        weight = weight * shrink + tl.sum(share, 1)
        value = tl.load(v + head + n[:, None] * WIDTH + d[None, :], mask=n[:, None] < S, other=0.0)
        total = tl.dot(share.to(value.dtype), value, total * shrink[:, None])
        largest = peak
    result = total / weight[:, None]
    at = out + head + m[:, None] * WIDTH + d[None, :]
    tl.store(at, result.to(out.dtype.element_ty), mask=m[:, None] < S)


@triton.jit
def softmax(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of each row, in two walks over it."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        peak = tl.maximum(largest, tl.max(tile, 1))
        total = total * tl.exp(largest - peak) + tl.sum(tl.exp(tile - peak[:, None]), 1)
        largest = peak
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        share = tl.exp(tile - largest[:, None]) / total[:, None]
        tl.store(y + m[:, None] * N + n[None, :], share.to(y.dtype.element_ty), mask=mask)


@triton.jit
def log_sum_exp(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of each row."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        peak = tl.maximum(largest, tl.max(tile, 1))
        total = total * tl.exp(largest - peak) + tl.sum(tl.exp(tile - peak[:, None]), 1)
        largest = peak
    tl.store(y + m, largest + tl.log(total), mask=m < M)


@triton.jit
def layer_norm(x, weight, bias, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of each row: (x - mean) / deviation · weight + bias."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    sums = tl.zeros((BLOCK_M,), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
        sums += tl.sum(tile, 1)
        squares += tl.sum(tile * tile, 1)
    mean = sums / N
    scale = 1.0 / tl.sqrt(squares / N - mean * mean + 1e-5)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight + n, mask=n < N, other=0.0)
        b = tl.load(bias + n, mask=n < N, other=0.0)
        result = (tile - mean[:, None]) * scale[:, None] * w[None, :] + b[None, :]
        tl.store(y + m[:, None] * N + n[None, :], result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm(x, residual, weight, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of each row of x + residual: divided by its root mean square, times weight."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        at = m[:, None] * N + n[None, :]
        tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        tile += tl.load(residual + at, mask=mask, other=0.0)
        squares += tl.sum(tile * tile, 1)
    scale = 1.0 / tl.sqrt(squares / N + 1e-6)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        at = m[:, None] * N + n[None, :]
        tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        tile += tl.load(residual + at, mask=mask, other=0.0)
        w = tl.load(weight + n, mask=n < N, other=0.0)
        tl.store(y + at, (tile * scale[:, None] * w[None, :]).to(y.dtype.element_ty), mask=mask)


@triton.jit
def row_sum(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of each row."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        total += tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + m, tl.sum(total, 1), mask=m < M)


@triton.jit
def column_sum(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """y plus the sum of each column; SPLIT programs share a column."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(tl.program_id(1) * BLOCK_M, M, BLOCK_M * SPLIT):
        m = first + tl.arange(0, BLOCK_M)
        mask = (m[:, None] < M) & (n[None, :] < N)
        total += tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
    column = tl.sum(total, 0)
    if SPLIT > 1:
        tl.atomic_add(y + n, column, mask=n < N, sem="relaxed")
    else:
        tl.store(y + n, tl.load(y + n, mask=n < N, other=0.0) + column, mask=n < N)


@triton.jit
def cumulative_sum(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Along each row."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    before = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
        running = tl.cumsum(tile, 1) + before[:, None]
        tl.store(y + m[:, None] * N + n[None, :], running, mask=mask)
        # Not `before += tl.sum(tile, 1)`: Triton 3.6 fails on a sum whose last value nothing uses.
        before = tl.sum(tl.where(tl.arange(0, BLOCK_N)[None, :] == BLOCK_N - 1, running, 0.0), 1)


@triton.jit
def bias_gelu(x, bias, residual, y, M, N, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    """gelu(x + bias) + residual; a program takes SPLIT blocks of BLOCK_N elements, one after the other."""
    size = M * N
    for step in range(SPLIT):
        at = (tl.program_id(0) * SPLIT + step) * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = at < size
        tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(bias + at % N, mask=mask, other=0.0)
        result = _gelu(tile + b) + tl.load(residual + at, mask=mask, other=0.0)
        tl.store(y + at, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def gated_linear(x, gate, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """silu(gate) · x."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    opening = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    tile = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + at, (opening * tl.sigmoid(opening) * tile).to(y.dtype.element_ty), mask=mask)


@triton.jit
def transpose(x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """y (N, M) from x (M, N)."""
    row, column = _block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    tile = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
    mask = (n[:, None] < N) & (m[None, :] < M)
    tl.store(y + n[:, None] * M + m[None, :], tl.trans(tile), mask=mask)


@triton.jit
def matrix_vector(a, x, y, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """y = a @ x."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        tile = tl.load(a + m[:, None] * N + n[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tile * tl.load(x + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    tl.store(y + m, tl.sum(total, 1).to(y.dtype.element_ty), mask=m < M)


@triton.jit
def depthwise_convolution(x, w, y, B, T, C, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Causal, over four steps of time, each channel by itself: x (B, T, C), w (4, C)."""
    t = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    base = tl.program_id(2).to(tl.int64) * T * C
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for tap in tl.static_range(4):
        back = t + tap - 3
        mask = (back[:, None] >= 0) & (back[:, None] < T) & (c[None, :] < C)
        tile = tl.load(x + base + back[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tile * tl.load(w + tap * C + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    mask = (t[:, None] < T) & (c[None, :] < C)
    at = y + base + t[:, None] * C + c[None, :]
    tl.store(at, (total * tl.sigmoid(total)).to(y.dtype.element_ty), mask=mask)

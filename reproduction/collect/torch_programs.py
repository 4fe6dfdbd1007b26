"""Programs that run unchanged on CPU and GPU, in fifteen families, each at many sizes: what relative performance
of your own systems is learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

Work = Callable[[], object]
Draw = Callable[..., Tensor]
"Random numbers of a shape, on the device."


@dataclass(frozen=True)
class TorchProgram:
    """One program: what it does at a size of about so many elements, or so long an edge."""

    family: str
    name: str
    make: Callable[[int, Draw], Work]
    usual: int
    "A core of a server takes some tens of milliseconds for this size; the last step is eight times the work."
    dimensions: int = 1
    "How fast the work grows: with this power of the size."

    def sizes(self, steps: int) -> list[int]:
        """Sizes whose work grows evenly in its logarithm, each about half of the next one's."""
        found = [round(self.usual * 2 ** ((4 + step - steps) / self.dimensions)) for step in range(steps)]
        return [max(4, size) for size in found]


def programs() -> list[TorchProgram]:
    """All of them, by family."""
    return [
        *_dense(), *_sparse(), *_fourier(), *_stencils(), *_sorting(), *_graphs(), *_random(), *_bodies(),
        *_images(), *_attention(), *_training(), *_tables(), *_hashing(), *_streams(), *_reductions(),
    ]  # fmt: skip


def _family(family: str, *entries: tuple[str, Callable[[int, Draw], Work], int, int]) -> list[TorchProgram]:
    return [TorchProgram(family, name, make, largest, power) for name, make, largest, power in entries]


def _dense() -> list[TorchProgram]:
    def product(rows: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            a, b = draw(rows or n, n), draw(n, n)
            return lambda: a @ b

        return make

    def solve(n: int, draw: Draw) -> Work:
        a, b = draw(n, n) + n * torch.eye(n, device=draw(1).device), draw(n, 1)
        return lambda: torch.linalg.solve(a, b)

    def cholesky(n: int, draw: Draw) -> Work:
        a = draw(n, n)
        a = a @ a.T + n * torch.eye(n, device=a.device)
        return lambda: torch.linalg.cholesky(a)

    def batched(n: int, draw: Draw) -> Work:
        a = draw(n, 16, 16)
        return lambda: torch.bmm(a, a)

    def power_iteration(n: int, draw: Draw) -> Work:
        a, x = draw(n, n), draw(n)

        def run() -> Tensor:
            v = x
            for _ in range(10):
                v = a @ v
                v = v / v.norm()
            return v

        return run

    def outer(n: int, draw: Draw) -> Work:
        a, b = draw(n), draw(n)
        return lambda: torch.outer(a, b)

    return _family(
        "dense", ("product", product(0), 900, 3), ("thin product", product(8), 3000, 2), ("solve", solve, 900, 3),
        ("cholesky", cholesky, 1100, 3), ("batched product", batched, 60_000, 1),
        ("power iteration", power_iteration, 1600, 2), ("outer product", outer, 4000, 2),
    )  # fmt: skip


def _sparse() -> list[TorchProgram]:
    def csr(columns: int, each: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            x = draw(n, columns)
            index = torch.randint(n, (n * each,), device=x.device)
            row, value = torch.arange(n, device=x.device).repeat_interleave(each), draw(n * each, 1)
            return lambda: torch.zeros_like(x).index_add_(0, row, value * x[index])

        return make

    def jacobi(n: int, draw: Draw) -> Work:
        x, index = draw(n), torch.randint(n, (n, 6), device=draw(1).device)

        def run() -> Tensor:
            y = x
            for _ in range(4):
                y = y[index].mean(1)
            return y

        return run

    def gather(n: int, draw: Draw) -> Work:
        x = draw(n)
        index = torch.randperm(n, device=x.device)
        return lambda: x[index]

    def scatter(n: int, draw: Draw) -> Work:
        x = draw(n)
        index = torch.randint(max(1, n // 64), (n,), device=x.device)
        return lambda: torch.zeros(max(1, n // 64), device=x.device).index_add_(0, index, x)

    return _family(
        "sparse", ("sparse vector", csr(1, 8), 200_000, 1), ("sparse block", csr(16, 8), 15_000, 1),
        ("jacobi", jacobi, 150_000, 1), ("gather", gather, 2_000_000, 1), ("scatter", scatter, 1_500_000, 1),
    )  # fmt: skip


def _fourier() -> list[TorchProgram]:
    def convolve(n: int, draw: Draw) -> Work:
        a, b = draw(n), draw(n)
        return lambda: torch.fft.irfft(torch.fft.rfft(a, 2 * n) * torch.fft.rfft(b, 2 * n))

    def one(n: int, draw: Draw) -> Work:
        a = draw(n)
        return lambda: torch.fft.fft(a)

    def two(n: int, draw: Draw) -> Work:
        a = draw(n, n)
        return lambda: torch.fft.fft2(a)

    def many(n: int, draw: Draw) -> Work:
        a = draw(n, 64)
        return lambda: torch.fft.rfft(a)

    def poisson(n: int, draw: Draw) -> Work:
        a = draw(n, n)
        k = torch.fft.fftfreq(n, device=a.device)
        scale = k[:, None] ** 2 + k[None] ** 2 + 1
        return lambda: torch.fft.ifft2(torch.fft.fft2(a) / scale).real

    return _family(
        "fourier", ("fft", one, 600_000, 1), ("fft of images", two, 800, 2), ("many short ffts", many, 30_000, 1),
        ("convolution by fft", convolve, 300_000, 1), ("poisson", poisson, 600, 2),
    )  # fmt: skip


def _stencils() -> list[TorchProgram]:
    def five(steps: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            grid = draw(n, n)

            def run() -> Tensor:
                x = grid.clone()
                for _ in range(steps):
                    inner = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
                    x[1:-1, 1:-1] = 0.25 * inner
                return x

            return run

        return make

    def seven(n: int, draw: Draw) -> Work:
        x = draw(n, n, n)
        return lambda: (
            x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1]
            + x[1:-1, 1:-1, :-2] + x[1:-1, 1:-1, 2:] - 6 * x[1:-1, 1:-1, 1:-1]
        )  # fmt: skip

    def wave(n: int, draw: Draw) -> Work:
        start = draw(n)

        def run() -> Tensor:
            old, now = start, start
            for _ in range(8):
                old, now = now, 2 * now - old + 0.1 * (now.roll(1) + now.roll(-1) - 2 * now)
            return now

        return run

    def life(n: int, draw: Draw) -> Work:
        board = (draw(1, 1, n, n) > 0).float()
        kernel = torch.ones(1, 1, 3, 3, device=board.device)
        return lambda: F.conv2d(board, kernel, padding=1).sub(board).eq(3)

    def upwind(n: int, draw: Draw) -> Work:
        x, speed = draw(n), draw(n)
        return lambda: x - 0.1 * torch.where(speed > 0, x - x.roll(1), x.roll(-1) - x) * speed

    return _family(
        "stencils", ("five points", five(4), 1000, 2), ("five points, long", five(24), 400, 2),
        ("seven points", seven, 110, 3), ("wave", wave, 300_000, 1), ("life", life, 1200, 2),
        ("upwind", upwind, 1_000_000, 1),
    )  # fmt: skip


def _sorting() -> list[TorchProgram]:
    def sort(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: x.sort()

    def rows(n: int, draw: Draw) -> Work:
        x = draw(n, 32)
        return lambda: x.sort(dim=1)

    def top(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: x.topk(min(64, n))

    def unique(n: int, draw: Draw) -> Work:
        x = (draw(n) * 1000).int()
        return lambda: torch.unique(x)

    def search(n: int, draw: Draw) -> Work:
        table, asked = draw(4096).sort().values, draw(n)
        return lambda: torch.searchsorted(table, asked)

    def median(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: x.median()

    return _family(
        "sorting", ("sort", sort, 400_000, 1), ("sorting of rows", rows, 20_000, 1), ("top k", top, 2_000_000, 1),
        ("unique", unique, 300_000, 1), ("binary search", search, 500_000, 1), ("median", median, 1_000_000, 1),
    )  # fmt: skip


def _graphs() -> list[TorchProgram]:
    def neighbours(n: int, draw: Draw, degree: int = 8) -> Tensor:
        return torch.randint(n, (n, degree), device=draw(1).device)

    def breadth_first(n: int, draw: Draw) -> Work:
        edges = neighbours(n, draw)

        def run() -> Tensor:
            seen = torch.zeros(n, dtype=torch.bool, device=edges.device)
            seen[0] = True
            for _ in range(6):
                seen = seen | seen[edges].any(1)
            return seen

        return run

    def page_rank(n: int, draw: Draw) -> Work:
        edges = neighbours(n, draw).flatten()

        def run() -> Tensor:
            rank = torch.full((n,), 1.0 / n, device=edges.device)
            for _ in range(4):
                sent = (rank / 8).repeat_interleave(8)
                rank = 0.15 / n + 0.85 * torch.zeros_like(rank).index_add_(0, edges, sent)
            return rank

        return run

    def walk(n: int, draw: Draw) -> Work:
        edges = neighbours(4096, draw)
        start, turn = (
            torch.arange(n, device=edges.device) % 4096,
            torch.randint(8, (16, n), device=edges.device),
        )

        def run() -> Tensor:
            at = start
            for step in turn:
                at = edges[at, step]
            return at

        return run

    def components(n: int, draw: Draw) -> Work:
        edges = neighbours(n, draw, 4)

        def run() -> Tensor:
            label = torch.arange(n, device=edges.device)
            for _ in range(6):
                label = torch.minimum(label, label[edges].min(1).values)
            return label

        return run

    def shortest_paths(n: int, draw: Draw) -> Work:
        distance = draw(n, n).abs()

        def run() -> Tensor:
            d = distance.clone()
            for k in range(min(n, 48)):
                d = torch.minimum(d, d[:, k : k + 1] + d[k : k + 1])
            return d

        return run

    return _family(
        "graph walks", ("breadth first", breadth_first, 60_000, 1), ("page rank", page_rank, 60_000, 1),
        ("random walk", walk, 200_000, 1), ("components", components, 80_000, 1),
        ("shortest paths", shortest_paths, 350, 2),
    )  # fmt: skip


def _random() -> list[TorchProgram]:
    def pi(n: int, draw: Draw) -> Work:
        return lambda: (torch.rand(n, 2, device=draw(1).device).square().sum(1) < 1).float().mean()

    def option(n: int, draw: Draw) -> Work:
        noise = draw(16, n)

        def run() -> Tensor:
            price = torch.full((n,), 100.0, device=noise.device)
            for step in noise:
                price = price * torch.exp(0.001 + 0.02 * step)
            return (price - 100).clamp(min=0).mean()

        return run

    def normal(n: int, draw: Draw) -> Work:
        return lambda: draw(n)

    def bootstrap(n: int, draw: Draw) -> Work:
        x = draw(1000)
        return lambda: x[torch.randint(1000, (n,), device=x.device)].mean()

    def ising(n: int, draw: Draw) -> Work:
        spins, chance = draw(n, n).sign(), torch.rand(4, n, n, device=draw(1).device)

        def run() -> Tensor:
            s = spins
            for one in chance:
                field = s.roll(1, 0) + s.roll(-1, 0) + s.roll(1, 1) + s.roll(-1, 1)
                s = torch.where(one < torch.sigmoid(-2 * s * field), -s, s)
            return s

        return run

    return _family(
        "monte carlo", ("pi", pi, 1_000_000, 1), ("option price", option, 100_000, 1),
        ("normal numbers", normal, 2_000_000, 1), ("bootstrap", bootstrap, 1_000_000, 1), ("ising", ising, 400, 2),
    )  # fmt: skip


def _bodies() -> list[TorchProgram]:
    def gravity(n: int, draw: Draw) -> Work:
        x = draw(n, 3)

        def run() -> Tensor:
            apart = x[None] - x[:, None]
            far = apart.square().sum(2) + 0.01
            return (apart / far.pow(1.5)[:, :, None]).sum(1)

        return run

    def distances(n: int, draw: Draw) -> Work:
        x = draw(n, 8)
        return lambda: torch.cdist(x, x)

    def nearest(n: int, draw: Draw) -> Work:
        x = draw(n, 8)
        return lambda: torch.cdist(x, x).argmin(1)

    def means(n: int, draw: Draw) -> Work:
        x, centre = draw(n, 8), draw(32, 8)
        return lambda: torch.cdist(x, centre).argmin(1)

    def springs(n: int, draw: Draw) -> Work:
        start = draw(n, 3)

        def run() -> Tensor:
            x, v = start, torch.zeros_like(start)
            for _ in range(8):
                force = x.roll(1, 0) + x.roll(-1, 0) - 2 * x
                v = v + 0.01 * force
                x = x + 0.01 * v
            return x

        return run

    return _family(
        "n-body", ("gravity", gravity, 700, 2), ("distances", distances, 1800, 2), ("nearest", nearest, 1500, 2),
        ("k means", means, 60_000, 1), ("springs", springs, 80_000, 1),
    )  # fmt: skip


def _images() -> list[TorchProgram]:
    def convolution(size: int, channels: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            x, kernel = draw(1, channels, n, n), draw(channels, channels, size, size)
            return lambda: F.conv2d(x, kernel, padding=size // 2)

        return make

    def histogram(n: int, draw: Draw) -> Work:
        x = (draw(n).abs() * 50).clamp(max=255).long()
        return lambda: torch.bincount(x, minlength=256)

    def pool(n: int, draw: Draw) -> Work:
        x = draw(1, 4, n, n)
        return lambda: F.max_pool2d(x, 3, 1)

    def resize(n: int, draw: Draw) -> Work:
        x = draw(1, 3, n, n)
        return lambda: F.interpolate(x, scale_factor=1.5, mode="bilinear")

    def rotate(n: int, draw: Draw) -> Work:
        x = draw(1, 3, n, n)
        turn = torch.tensor([[[0.8, -0.6, 0.0], [0.6, 0.8, 0.0]]], device=x.device)
        grid = F.affine_grid(turn, [1, 3, n, n], align_corners=False)
        return lambda: F.grid_sample(x, grid, align_corners=False)

    def integral(n: int, draw: Draw) -> Work:
        x = draw(n, n)
        return lambda: x.cumsum(0).cumsum(1)

    return _family(
        "image filters", ("small filter", convolution(3, 3), 700, 2), ("deep filter", convolution(3, 32), 160, 2),
        ("wide filter", convolution(11, 3), 300, 2), ("histogram", histogram, 1_500_000, 1),
        ("max pooling", pool, 500, 2), ("resizing", resize, 500, 2), ("rotation", rotate, 400, 2),
        ("integral image", integral, 1400, 2),
    )  # fmt: skip


def _attention() -> list[TorchProgram]:
    def scaled(heads: int, width: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            q, k, v = (draw(1, heads, n, width) for _ in range(3))
            return lambda: F.scaled_dot_product_attention(q, k, v)

        return make

    def plain(n: int, draw: Draw) -> Work:
        q, k, v = draw(n, 64), draw(n, 64), draw(n, 64)
        return lambda: torch.softmax(q @ k.T / 8, dim=1) @ v

    def layer_norm(n: int, draw: Draw) -> Work:
        x = draw(n, 512)
        return lambda: F.layer_norm(x, (512,))

    def gelu(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: F.gelu(x)

    def feed_forward(n: int, draw: Draw) -> Work:
        x, up, down = draw(n, 256), draw(256, 1024), draw(1024, 256)
        return lambda: F.gelu(x @ up) @ down

    return _family(
        "attention", ("few heads", scaled(2, 64), 700, 2), ("many heads", scaled(16, 16), 350, 2),
        ("softmax attention", plain, 900, 2), ("layer norm", layer_norm, 4000, 1), ("gelu", gelu, 1_000_000, 1),
        ("feed forward", feed_forward, 900, 1),
    )  # fmt: skip


def _training() -> list[TorchProgram]:
    def step(network: Callable[[], torch.nn.Module], width: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            x, y = draw(n, width), draw(n, 1)
            model = network().to(x.device)
            optimiser = torch.optim.SGD(model.parameters(), 1e-3)

            def run() -> float:
                optimiser.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                return float(loss.detach())

            return run

        return make

    def wide() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

    def deep() -> torch.nn.Module:
        layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
        return torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))

    def logistic(n: int, draw: Draw) -> Work:
        x, y, w = draw(n, 32), (draw(n) > 0).float(), draw(32)
        return lambda: w - 0.1 * x.T @ (torch.sigmoid(x @ w) - y) / n

    def recurrent(n: int, draw: Draw) -> Work:
        x, w, u = draw(16, n, 32), draw(32, 32), draw(32, 32)

        def run() -> Tensor:
            h = torch.zeros_like(x[0])
            for one in x:
                h = torch.tanh(one @ w + h @ u)
            return h

        return run

    def adam(n: int, draw: Draw) -> Work:
        weight, gradient, m, v = draw(n), draw(n), draw(n), draw(n).abs()

        def run() -> Tensor:
            first, second = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.square()
            return weight - 0.001 * first / (second.sqrt() + 1e-8)

        return run

    return _family(
        "training", ("wide network", step(wide, 64), 2500, 1), ("deep network", step(deep, 64), 4000, 1),
        ("logistic regression", logistic, 60_000, 1), ("recurrent network", recurrent, 3000, 1),
        ("adam", adam, 500_000, 1),
    )  # fmt: skip


def _tables() -> list[TorchProgram]:
    def edit_distance(n: int, draw: Draw) -> Work:
        cost = draw(n, n).abs()

        def run() -> Tensor:
            row = cost[0]
            for k in range(1, min(n, 64)):
                row = torch.minimum(row, row.roll(1)) + cost[k]
            return row

        return run

    def knapsack(n: int, draw: Draw) -> Work:
        worth = draw(24).abs()

        def run() -> Tensor:
            best = torch.zeros(n, device=worth.device)
            for number, value in enumerate(worth):
                shift = 3 + 7 * number % max(4, n)
                moved = F.pad(best, (shift, 0))[:n] + value
                best = torch.maximum(best, moved)
            return best

        return run

    def scan(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: x.cumsum(0)

    def largest_run(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: (x.cumsum(0) - x.cumsum(0).cummin(0).values).max()

    def viterbi(n: int, draw: Draw) -> Work:
        step, emitted = draw(n, n), draw(16, n)

        def run() -> Tensor:
            score = emitted[0]
            for one in emitted[1:]:
                score = (score[:, None] + step).max(0).values + one
            return score

        return run

    return _family(
        "dynamic programming", ("edit distance", edit_distance, 40_00, 2), ("knapsack", knapsack, 100_000, 1),
        ("prefix sums", scan, 1_500_000, 1), ("largest run", largest_run, 600_000, 1), ("viterbi", viterbi, 500, 2),
    )  # fmt: skip


def _hashing() -> list[TorchProgram]:
    def integers(n: int, draw: Draw) -> Tensor:
        return (draw(n) * 1e6).long()

    def mix(rounds: int) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            x = integers(n, draw)

            def run() -> Tensor:
                h = x
                for _ in range(rounds):
                    h = (h ^ (h >> 13)) * 0x5BD1E995 & 0xFFFFFFFF
                return h

            return run

        return make

    def table(n: int, draw: Draw) -> Work:
        slots = integers(n, draw).abs() % 65536
        return lambda: torch.zeros(65536, dtype=torch.long, device=slots.device).scatter_add_(0, slots, slots)

    def bloom(n: int, draw: Draw) -> Work:
        x = integers(n, draw)
        bits = torch.rand(1 << 16, device=x.device) > 0.5
        return lambda: bits[x * 31 & 65535] & bits[x * 17 & 65535] & bits[x * 13 & 65535]

    def parity(n: int, draw: Draw) -> Work:
        x = integers(n, draw)

        def run() -> Tensor:
            y = x
            for shift in (32, 16, 8, 4, 2, 1):
                y = y ^ (y >> shift)
            return y & 1

        return run

    def sieve(n: int, draw: Draw) -> Work:
        number = torch.arange(n, device=draw(1).device)

        def run() -> Tensor:
            prime = number > 1
            for k in (2, 3, 5, 7, 11, 13, 17, 19):
                prime = prime & ((number % k != 0) | (number == k))
            return prime

        return run

    return _family(
        "hashing", ("mixing", mix(2), 500_000, 1), ("long mixing", mix(16), 80_000, 1), ("hash table", table, 500_000, 1),
        ("bloom filter", bloom, 300_000, 1), ("parity", parity, 300_000, 1), ("sieve", sieve, 150_000, 1),
    )  # fmt: skip


def _streams() -> list[TorchProgram]:
    def delta(n: int, draw: Draw) -> Work:
        x = (draw(n) * 100).int()
        return lambda: F.pad(x.diff(), (1, 0))

    def run_lengths(n: int, draw: Draw) -> Work:
        x = (draw(n) * 2).int()
        return lambda: torch.unique_consecutive(x, return_counts=True)

    def quantise(n: int, draw: Draw) -> Work:
        x = draw(n)

        def run() -> Tensor:
            scale = x.abs().max() / 127
            return (x / scale).round().to(torch.int8).float() * scale

        return run

    def compaction(n: int, draw: Draw) -> Work:
        x = draw(n)
        return lambda: x[x > 0.5]

    def transpose(n: int, draw: Draw) -> Work:
        x = draw(n, n)
        return lambda: x.T.contiguous()

    def triad(n: int, draw: Draw) -> Work:
        a, b = draw(n), draw(n)
        return lambda: a + 3.0 * b

    return _family(
        "compression", ("deltas", delta, 2_000_000, 1), ("run lengths", run_lengths, 500_000, 1),
        ("quantising", quantise, 1_000_000, 1), ("compaction", compaction, 1_000_000, 1),
        ("transposing", transpose, 1800, 2), ("triad", triad, 3_000_000, 1),
    )  # fmt: skip


def _reductions() -> list[TorchProgram]:
    def of(function: Callable[[Tensor], Tensor], rows: bool) -> Callable[[int, Draw], Work]:
        def make(n: int, draw: Draw) -> Work:
            x = draw(n, 64) if rows else draw(n)
            return partial(function, x)

        return make

    def moments(x: Tensor) -> Tensor:
        centred = x - x.mean()
        return torch.stack([centred.square().mean(), centred.pow(3).mean(), centred.pow(4).mean()])

    return _family(
        "reductions", ("sum", of(torch.sum, False), 5_000_000, 1),
        ("sums of rows", of(lambda x: x.sum(1), True), 60_000, 1),
        ("sums of columns", of(lambda x: x.sum(0), True), 60_000, 1),
        ("log-sum-exp", of(lambda x: x.logsumexp(0), False), 500_000, 1), ("moments", of(moments, False), 300_000, 1),
        ("softmax of rows", of(lambda x: x.softmax(1), True), 15_000, 1),
        ("special functions", of(lambda x: x.abs().log1p().sin().erf(), False), 200_000, 1),
    )  # fmt: skip


def every_run(steps: int) -> Iterator[tuple[TorchProgram, int]]:
    """Each program at each of its sizes, the small ones first."""
    found = programs()
    for step in range(steps):
        for program in found:
            sizes = program.sizes(steps)
            if sizes[step] not in sizes[:step]:  # the least size stands for all below it
                yield program, sizes[step]

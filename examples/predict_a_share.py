"""Which share of a kernel's work should the CPU take, how sure is that, and which instructions decide?"""

from __future__ import annotations

import apportion

STENCIL = """
kernel void stencil(global const float *in, global float *out, const int width)
{
    const int x = get_global_id(0), y = get_global_id(1), at = y * width + x;
    if (x > 0 && y > 0 && x < width - 1 && y < (int)get_global_size(1) - 1)
        out[at] = 0.2f * (in[at] + in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
}
"""


def main() -> None:
    source = apportion.Source(STENCIL, "opencl", "stencil.cl")
    for size in (256, 1024, 4096):
        answer = apportion.predict(
            source, local_size=(16, 16), global_size=(size, size), bytes=8 * size * size
        )
        low, high = answer.interval
        print(
            f"{size} x {size}: {answer.cpu_share:.0%} for the CPU "
            f"({low:.0%} to {high:.0%} with confidence {answer.confidence:.0%}), "
            f"familiarity {answer.familiarity:.2f}"
        )
    why = apportion.explain(source, local_size=(16, 16), bytes=8 << 20)
    print("the instructions that moved the answer most:")
    for line in why.strongest[:3]:
        print(f"  {line.added:+.1f} percent: {line.text}")


if __name__ == "__main__":
    main()

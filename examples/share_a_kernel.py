"""How do I run one kernel on all devices of this machine, and is it worth it?"""

from __future__ import annotations

import numpy as np

import apportion

MANDELBROT = """
kernel void mandelbrot(global int *steps, const int width, const int most)
{
    const int x = get_global_id(0), y = get_global_id(1);
    const float a = 3.0f * x / width - 2.0f, b = 2.0f * y / get_global_size(1) - 1.0f;
    float u = 0, v = 0;
    int n = 0;
    while (n < most && u * u + v * v < 4.0f) {
        const float t = u * u - v * v + a;
        v = 2 * u * v + b;
        u = t;
        n++;
    }
    steps[y * width + x] = n;
}
"""


def main() -> None:
    width, height = 512, 512
    steps = np.zeros((height, width), np.int32)
    with apportion.share(MANDELBROT) as kernel:
        for launch in range(4):
            execution = kernel(steps, width, 500, global_size=(width, height))
            shares = ", ".join(f"{device} {share:.0%}" for device, share in execution.split.items())
            print(f"launch {launch + 1}: {execution.seconds * 1e3:.1f} ms with {shares}")
    alone = ", ".join(f"{device} {seconds * 1e3:.1f} ms" for device, seconds in execution.alone.items())
    print(f"alone: {alone}")
    print(f"{int((steps == 500).sum())} of {steps.size} points lie in the set")


if __name__ == "__main__":
    main()

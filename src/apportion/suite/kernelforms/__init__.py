"""The forms of generated kernels: what is read and written where, what is looped over, who waits for whom.

Each form draws a kernel. Every loop ends, whatever the data: bounds are constants, arguments, or data
under a mask. Every index lies inside its array, whose length stands in the arguments.
"""

from __future__ import annotations

from apportion.suite.kernelforms.base import TURNS, Draft, Form
from apportion.suite.kernelforms.collective import exchanged, histogram, looked_up, reduction, scan
from apportion.suite.kernelforms.dense import (
    elementwise,
    image,
    scatter,
    solver,
    stencil_line,
    stencil_plane,
    stencil_space,
    strided_loop,
)
from apportion.suite.kernelforms.irregular import divergent, made_up, private, sparse
from apportion.suite.kernelforms.matrices import pairs, product, product_tiled, rows, transposed

__all__ = ["FORMS", "TURNS", "Draft", "Form"]

FORMS: tuple[tuple[Form, float], ...] = (
    (elementwise, 5.0), (scatter, 1.0), (stencil_line, 1.5), (stencil_plane, 2.0), (stencil_space, 1.5),
    (product, 1.5), (product_tiled, 1.0), (rows, 2.5), (transposed, 1.0), (reduction, 2.0), (scan, 1.0),
    (histogram, 1.5), (divergent, 2.5), (sparse, 2.0), (pairs, 1.5), (made_up, 1.5), (private, 1.5),
    (looked_up, 1.5), (exchanged, 1.0), (strided_loop, 1.5), (solver, 2.5), (image, 1.0),
)  # fmt: skip
"Forms, and how often each is drawn."

#!/bin/bash
# Fill carry/ with what tools/lent.sh needs on a machine with a GPU that reaches no package registry:
#
#     tools/carry.sh PYTHON [CGO17]
#
# PYTHON is an interpreter of that machine's version (its python3 -V says which), CGO17 the folder of that dataset.
# Needs .venv (make native). What is there already is kept. ONLY=site leaves out what campaigns and ablations need.
set -euo pipefail
PYTHON=$1 CGO17=${2:-../shared/data/cgo17}
HERE=$PWD OUT=$PWD/carry WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$OUT"
version=$("$PYTHON" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')

# Packages; NumPy, SciPy, scikit-learn, torch, Triton and JAX are that machine's own.
if [ ! -e "$OUT/site.tar.xz" ]; then
    "$PYTHON" -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" --quiet download --no-deps --only-binary=:all: --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --dest "$WORK/wheels" \
        polars polars-runtime-32 pyopencl cyclopts pydantic pydantic-core rich attrs docstring-parser rich-rst docutils \
        markdown-it-py mdurl pygments typing-inspection typing-extensions annotated-types pytools platformdirs siphash24 safetensors
    for wheel in "$WORK"/wheels/*.whl; do unzip -q -o "$wheel" -d "$WORK/site"; done
    find "$WORK/site" -name '*.so' -exec strip --strip-unneeded {} +
    tar c -C "$WORK/site" . | xz -3 -T0 > "$WORK/site.tar.xz" && mv "$WORK/site.tar.xz" "$OUT"
fi

# What runs tests.
if [ ! -e "$OUT/tests.tar.xz" ]; then
    [ -e "$WORK/venv" ] || "$PYTHON" -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" --quiet download --no-deps --only-binary=:all: --python-version "$version" --dest "$WORK/pytest" \
        pytest pluggy iniconfig packaging hypothesis sortedcontainers
    for wheel in "$WORK"/pytest/*.whl; do unzip -q -o "$wheel" -d "$WORK/tests"; done
    tar c -C "$WORK/tests" . | xz -6 > "$WORK/tests.tar.xz" && mv "$WORK/tests.tar.xz" "$OUT"
fi

# The native extension for that Python.
if ! compgen -G "$OUT/campaign/_native*.so" > /dev/null; then
    [ -e "$WORK/venv" ] || "$PYTHON" -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" --quiet install nanobind cmake ninja numpy
    PATH=$WORK/venv/bin:$PATH cmake -G Ninja -S "$HERE" -B "$WORK/build" -DPython_EXECUTABLE="$WORK/venv/bin/python" > /dev/null
    "$WORK/venv/bin/cmake" --build "$WORK/build" > /dev/null
    mkdir -p "$OUT/campaign" && cp "$WORK"/build/_native*.so "$OUT/campaign"
fi

[ "${ONLY:-}" = site ] && exit 0

[ -e "$OUT/kernels.npz" ] || .venv/bin/python -m reproduction ablation --data "$CGO17" --pack-to "$OUT/kernels.npz"
[ -e "$OUT/campaign/kernels.parquet" ] || .venv/bin/python -m reproduction.campaign.steps pack "$OUT/campaign" --cgo17 "$CGO17"
du -sh "$OUT"

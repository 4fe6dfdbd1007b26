#!/bin/bash
# Fill carry/ with what tools/lent-programs.sh needs on a machine with a GPU that reaches no package registry:
#
#     tools/carry-programs.sh PYTHON
#
# PYTHON is an interpreter of that machine's version. Needs .venv, and libstarpu-dev with a C compiler for StarPU's part
# (apt-get install libstarpu-dev opencl-headers ocl-icd-opencl-dev gcc); without them that part is left out there.
set -euo pipefail
ONLY=site "$(dirname "$0")/carry.sh" "$1"
OUT=$PWD/carry/programs
mkdir -p "$OUT/lib"
.venv/bin/python -m benchmarks.programs --pack "$OUT/ir.json"
if [ ! -e "$OUT/site.tar.xz" ]; then # nothing here reads Parquet, and polars is four fifths of all packages
    SITE=$(mktemp -d)
    trap 'rm -rf "$SITE"' EXIT
    tar xJf carry/site.tar.xz -C "$SITE"
    rm -r "$SITE"/polars* "$SITE"/_polars*
    tar c -C "$SITE" . | xz -6 > "$OUT/site.tar.xz"
fi
if [ -e /usr/include/starpu/1.3/starpu.h ]; then
    gcc -O2 -DCL_TARGET_OPENCL_VERSION=120 -Wno-deprecated-declarations -I/usr/include/starpu/1.3 \
        benchmarks/starpu_replay.c -o "$OUT/starpu_replay" -lstarpu-1.3 -lOpenCL
    # All that it is linked with, but for what every machine has and the loader of that machine's drivers.
    ldd "$OUT/starpu_replay" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libgcc_s|libOpenCL|libdl|libpthread)\.so' |
        xargs -I{} cp -L {} "$OUT/lib"
fi
du -sh "$OUT" carry/campaign/_native*.so
echo "Carry: carry/programs $(ls carry/campaign/_native*.so)"

#!/bin/bash
# The steps of reproduction/campaign/steps.py on a machine that is lent for minutes, from the root of a copy of the repository:
#
#     tools/campaign.sh compile KERNELS RESULTS SECONDS    compile everything for the CPU; others may use the GPU
#     tools/campaign.sh prepare KERNELS RESULTS SECONDS    compile the rest and try everything; nobody else on the GPU
#     tools/campaign.sh measure KERNELS RESULTS SECONDS    the campaign, 40 s of it (OTHERS) for other numbers of processors;
#                                                          quiet; what was only compiled is measured too; PASSES=8: a
#                                                          sample of what was measured before, until it was so often
#     tools/campaign.sh together KERNELS RESULTS SECONDS   the suite on both devices; quiet; by what the campaign taught, the
#                                                          one measured here or the shipped one; FIT=0: without
#
# KERNELS is what `python -m reproduction.campaign.steps pack` wrote, with the native extension for that machine's Python beside it
# (_native*.so) and, to go on with an earlier campaign, its journal.jsonl. PART=2/3 takes a third of the kernels.
# RESULTS grows as it goes: what is there when time is up can be used. Each step ends by itself.
set -u
STEP=$1 KERNELS=$(readlink -f "$2") RESULTS=$3 SECONDS_LEFT=$4
mkdir -p "$RESULTS"; RESULTS=$(readlink -f "$RESULTS")
# Compilers and drivers write thousands of small files, and the suite's arrays are gigabytes: in memory 37 kernels a second
# are prepared, on the disk of a new machine 1.6.
if [ -z "${APPORTION_CACHE:-}" ] && [ "$(df -m --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 60000 ]; then
    export APPORTION_CACHE=/dev/shm/apportion-cache CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-/dev/shm/nv}
    mkdir -p /dev/shm/apportion-suite; [ -e /tmp/apportion-suite ] || ln -s /dev/shm/apportion-suite /tmp/apportion-suite
fi
export APPORTION_CACHE=${APPORTION_CACHE:-/tmp/apportion-cache} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
STATE=$APPORTION_CACHE/campaign; mkdir -p "$STATE"
# Compilers that give memory back and take it again fault pages, which is slow in a virtual machine: 52 kernels a second
# were compiled with these settings, 37 without.
TUNED=glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=4294967296:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.top_pad=67108864
for file in "$KERNELS"/_native*.so; do [ -e "$file" ] && cp -n "$file" src/apportion/; done
tool() { python3 -m reproduction.campaign.steps "$@"; }

case $STEP in
compile)
    CUDA_VISIBLE_DEVICES='' GLIBC_TUNABLES=$TUNED tool prepare "$KERNELS" "$STATE" --devices cpu --processes "$(nproc)" --seconds $((SECONDS_LEFT - 22))
    cp "$STATE/compiled.jsonl" "$RESULTS"/
    ;;
prepare)
    GLIBC_TUNABLES=$TUNED tool prepare "$KERNELS" "$STATE" --processes $((($(nproc) + 1) * 2 / 3)) --seconds $((SECONDS_LEFT - 22))
    cp "$STATE/prepared.jsonl" "$RESULTS"/
    ;;
measure)
    for file in prepared compiled; do [ -e "$STATE/$file.jsonl" ] && cp "$STATE/$file.jsonl" "$RESULTS"/; done
    [ -e "$KERNELS/journal.jsonl" ] && [ ! -e "$RESULTS/journal.jsonl" ] && cp "$KERNELS/journal.jsonl" "$RESULTS"/
    others=${OTHERS:-$((SECONDS_LEFT > 120 ? 40 : SECONDS_LEFT / 5))}
    timeout $((SECONDS_LEFT - others + 3)) python3 -m reproduction.campaign.steps measure "$KERNELS" "$RESULTS" \
        --seconds $((SECONDS_LEFT - others - 4)) --passes "${PASSES:-1}"
    echo "$RESULTS" > "$STATE/where"
    [ "$others" -lt 8 ] || timeout $others python3 -m reproduction.campaign.steps systems "$KERNELS" "$RESULTS" --seconds $((others - 6))
    tool table "$KERNELS" "$RESULTS"
    ;;
together)
    began=$(date +%s)
    [ "${FIT:-1}" = 0 ] || timeout 30 python3 -m reproduction.campaign.steps fit "$KERNELS" "$(cat "$STATE/where" 2>/dev/null || echo none)"
    left() { echo $((SECONDS_LEFT - ($(date +%s) - began))); }
    each() { python3 -c "print(max($1, ($2 - $3) / 31))"; }
    large=$(($(left) * 3 / 4))
    timeout -s INT $((large + 6)) python3 -m reproduction.campaign.steps suite "$KERNELS" "$RESULTS" efficiency --large \
        --budget "$(each 0.4 $large 12)" --total $large --devices "${DEVICES:-cpu,gpu}" --out "$RESULTS/large" --json > /dev/null
    usual=$(left); [ "$usual" -lt 6 ] && exit 0
    timeout -s INT "$usual" python3 -m reproduction.campaign.steps suite "$KERNELS" "$RESULTS" efficiency \
        --budget "$(each 0.2 "$usual" 5)" --total $((usual - 2)) --devices "${DEVICES:-cpu,gpu}" --out "$RESULTS/usual" --json > /dev/null
    ;;
*)
    echo "compile, prepare, measure or together, not $STEP" >&2; exit 2
    ;;
esac

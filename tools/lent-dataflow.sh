#!/bin/bash
# The networks of docs/results/dataflow.md on a machine with a GPU that is lent for minutes:
#
#     tools/lent-dataflow.sh pack STORE EXACT          here: fill carry/dataflow/ from the two datasets
#     tools/lent-dataflow.sh train RESULTS SECONDS     there, from the root of a copy of the repository
#
# STORE and EXACT are what `apportion dataset dataflow` made of the same corpus with --mode reference and --mode exact;
# carry/ must have what tools/carry.sh puts there. `train` ends by itself within SECONDS (480 for all of
# experiments/reproduce-dataflow.toml), whatever is finished by then; FORWARD of them (default 50, 0 for none) are for
# benchmarks/forward.py at the end. RESULTS/runs.tar.gz has the finished runs, unfinished.tar.gz the others with their
# checkpoints, both made anew every 15 s. Unpacked as runs/dataflow they are what `python -m reproduction dataflow` reads.
# carry/dataflow/runs.tar.gz, where it is, has runs of an earlier time that others go on from. JOBS run at once; ONLY names
# experiments.
set -u
CARRY=$PWD/carry/dataflow MAIN='from apportion.cli import main; main()'

pack() { # STORE EXACT: the two datasets have the same graphs; of the second only what differs is kept
    set -e
    local work; work=$(mktemp -d); mkdir -p "$CARRY" "$work/one" "$work/other" "$work/site"
    .venv/bin/apportion dataset pack "$1" "$work/one.tar" --megabytes 1000
    .venv/bin/apportion dataset pack "$2" "$work/other.tar" --megabytes 1000 --tasks liveness
    tar xf "$work/one.tar" -C "$work/one"; tar xf "$work/other.tar" -C "$work/other"
    cp "$work/one.tar" "$CARRY/reference.tar"
    (cd "$work/other" && find . -type f | sed 's|^\./||' | while read -r file; do
        cmp -s "$file" "$work/one/$file" || echo "$file"; done) > "$work/differ"
    if grep -E '/(edge|node)_' "$work/differ"; then echo "The two datasets have other graphs" >&2; exit 1; fi
    tar cf "$CARRY/exact.tar" -C "$work/other" -T "$work/differ"
    tar xJf carry/site.tar.xz -C "$work/site"
    (cd "$work/site" && rm -rf polars* _polars* pyopencl* pytools* siphash24* platformdirs*)
    tar c -C "$work/site" . | xz -6 > "$CARRY/site.tar.xz"
    cp carry/campaign/_native*.so "$CARRY"
    rm -rf "$work"
    ls -l "$CARRY"
}

keep() { # finished runs, and apart from them how far the others are
    (cd "$WORK/runs" && for run in */; do
        [ -d "$run" ] || continue
        kind=unfinished; [ -e "$run/evaluation.json" ] && kind=runs
        find "./$run" -type f ! -name '*.part' >> $WORK/$kind.txt
    done
    sed -i '/checkpoint/d' $WORK/runs.txt; [ ! -e dataflow.md ] || echo ./dataflow.md >> $WORK/runs.txt
    for kind in runs unfinished; do
        tar cz --ignore-failed-read -T $WORK/$kind.txt -f "$RESULTS/$kind.part" && mv "$RESULTS/$kind.part" "$RESULTS/$kind.tar.gz"
        : > $WORK/$kind.txt
    done) 2> /dev/null
}

share() { # the GPU among processes, through NVIDIA's daemon where it works; without it they take turns
    command -v nvidia-cuda-mps-control > /dev/null || return 0
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log; mkdir -p /tmp/mps /tmp/mps-log
    nvidia-cuda-mps-control -d
    timeout 40 python3 -c 'import torch; torch.ones(9, device="cuda").sum().item()' && echo "sharing the GPU" && return
    echo quit | timeout 10 nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

unshare_gpu() {
    [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || return 0
    echo quit | timeout 10 nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

train() { # RESULTS SECONDS
    local end=$((SECONDS + $2)) forward=${FORWARD:-50} turn=0 last attempt training unpacking
    WORK=/tmp/apportion-dataflow; mkdir -p "$1" $WORK/runs $WORK/site $WORK/exact-files; RESULTS=$(readlink -f "$1")
    exec > >(tee -a "$RESULTS/log.txt") 2>&1
    : > $WORK/runs.txt; : > $WORK/unfinished.txt
    tar xJf "$CARRY/site.tar.xz" -C $WORK/site
    cp -n "$CARRY"/_native*.so src/apportion/
    export PYTHONPATH=$PWD/src:$WORK/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
    [ ! -e "$CARRY/runs.tar.gz" ] || tar xzf "$CARRY/runs.tar.gz" -C $WORK/runs
    tar xf "$CARRY/reference.tar" -C $WORK/exact-files && tar xf "$CARRY/exact.tar" -C $WORK/exact-files
    tar cf $WORK/exact.tar -C $WORK/exact-files $(tar tf "$CARRY/reference.tar")
    python3 -c "$MAIN" dataset unpack "$CARRY/reference.tar" $WORK/store & unpacking=$!
    python3 -c "$MAIN" dataset unpack $WORK/exact.tar $WORK/exact
    wait $unpacking
    share
    for attempt in 1 2; do # a second time for what failed; what is finished is not done again
        last=$((end - forward - 2))
        [ $((last - SECONDS)) -gt 45 ] || break
        # A session of its own, so that it can be ended with the processes it started.
        setsid python3 -c "$MAIN" reproduce dataflow ${ONLY:-} --store $WORK/store --exact-store $WORK/exact --runs $WORK/runs \
            --out $WORK/runs/dataflow.md --settings "${PLAN:-experiments/reproduce-dataflow.toml}" --jobs "${JOBS:-12}" \
            --seconds $((last - SECONDS - 23)) &
        training=$!
        while kill -0 $training 2> /dev/null && [ $SECONDS -lt $last ]; do
            sleep 1
            [ $((turn = (turn + 1) % 15)) = 0 ] && keep
        done
        kill -- -$training 2> /dev/null
        wait $training; echo "[$SECONDS s] training ended with $?"
    done
    keep
    unshare_gpu
    [ "$forward" = 0 ] || timeout -k 3 $((end - SECONDS)) python3 benchmarks/forward.py --seconds 0.5 --out "$RESULTS/forward.json"
    echo "[$SECONDS s] done"
}

case ${1:-} in
pack | train) "$@" ;;
*) echo "pack or train, not '${1:-}'" >&2; exit 2 ;;
esac

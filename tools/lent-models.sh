#!/bin/bash
# What docs/results need a GPU for: times of our own programs on six systems, and networks that rank or balance, trained
# until they stop learning. Two steps:
#
#     tools/lent-models.sh pack [DATA]            here: fill carry/models/ (DATA is the folder of third-party data)
#     tools/lent-models.sh run RESULTS SECONDS    there, from the root of a copy of the repository, carry/models with it
#
# `run` ends by itself within SECONDS (470 do); RESULTS/models.tar.gz has everything, made anew after each part. carry/ must
# have what tools/carry.sh puts there (site.tar.xz, campaign/_native*.so, kernels.npz). Unpacked as runs/lent:
#
#     python -m reproduction collect programs runs/lent/programs --out programs.parquet
#     python -m reproduction tensor-ranking --data ../shared/data/tpugraphs --settings experiments/tensor-ranking-converged.toml \
#         --results runs/lent/tensor-ranking.jsonl
#     python -m reproduction ablation --out runs/lent/ablation
set -u
CARRY=$PWD/carry/models

pack() {
    set -e
    mkdir -p "$CARRY"
    cp carry/site.tar.xz carry/kernels.npz carry/campaign/_native*.so "$CARRY"
    tar cf "$CARRY/tpugraphs.tar" -C "${1:-../shared/data}" tpugraphs
    du -sh "$CARRY"
}

keep() { tar czf "$RESULTS/models.part" -C "$WORK" results && mv "$RESULTS/models.part" "$RESULTS/models.tar.gz"; }

part() { # NAME SECONDS COMMAND…: its output goes to results/NAME.log
    local name=$1 seconds=$2; shift 2
    [ "$seconds" -gt 5 ] || { echo "$name: left out, the time is up"; return; }
    timeout -k 3 "$seconds" "$@" > "$WORK/results/$name.log" 2>&1
    echo "[$SECONDS s] $name ended with $?"
}

times() { # SYSTEM SECONDS WORDS…
    local system=$1 seconds=$2; shift 2
    part "times-$system" $((seconds + 8)) "$@" python3 -m reproduction.collect.program_times measure \
        "$WORK/results/programs" "$system" --seconds "$seconds" $WORDS
}

share() { # 100, 25 or 10 percent of the multiprocessors, through NVIDIA's daemon
    local percent=$1; shift
    WORDS="--device cuda --threads 1" times "h200-$percent" "$1" env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="$percent" taskset -c 12
}

run() { # RESULTS SECONDS
    local end=$((SECONDS + $2)) left
    WORK=/tmp/apportion-models; mkdir -p "$1" $WORK/results/programs $WORK/site; RESULTS=$(readlink -f "$1")
    exec > >(tee -a "$RESULTS/log.txt") 2>&1
    tar xJf "$CARRY/site.tar.xz" -C $WORK/site; tar xf "$CARRY/tpugraphs.tar" -C $WORK
    cp -n "$CARRY"/_native*.so src/apportion/
    export PYTHONPATH=$PWD/src:$PWD:$WORK/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
    # Alone on the machine: sixteen cores, then one and four beside the GPU, each on cores of its own.
    OMP_NUM_THREADS=16 WORDS="--threads 16" times xeon-16 45 env; keep
    (WORDS="--threads 1" times xeon-1 110 taskset -c 0) &
    (WORDS="--threads 4" times xeon-4 110 env OMP_NUM_THREADS=4 taskset -c 2-5) &
    part counters 110 taskset -c 7 python3 -m reproduction.collect.program_times count "$WORK/results/programs" &
    if command -v nvidia-cuda-mps-control > /dev/null; then
        export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log; mkdir -p /tmp/mps /tmp/mps-log
        nvidia-cuda-mps-control -d
        share 100 32; share 25 32; share 10 40
        echo quit | timeout 10 nvidia-cuda-mps-control
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    else
        WORDS="--device cuda --threads 1" times h200-100 60 taskset -c 12
    fi
    wait; keep
    left=$((end - SECONDS - 10))
    (part ablation "$left" python3 -m reproduction ablation --packed "$CARRY/kernels.npz" --device cuda --only train \
        --folds thesis --seconds $((left - 15)) --out "$WORK/results/ablation" \
        --rows "(Skips + Ext. Readout) + ProGraML, dropout node by node") &
    (part tables "$left" python3 -m reproduction tensor-ranking --data $WORK/tpugraphs --out "$WORK/results/tables.md" \
        --settings experiments/tensor-ranking-converged.toml --results "$WORK/results/tensor-ranking.jsonl") &
    (part networks "$left" python3 -m reproduction tensor-ranking --collection experiments/collections/h200-triton \
        --comparison experiments/converged-networks.toml --out "$WORK/results/networks.md" \
        --results "$WORK/results/networks.jsonl") &
    wait; keep
    echo "[$SECONDS s] done"; ls -l "$RESULTS"
}

"$@"

#!/bin/bash
# What docs/results need a GPU for: times of our own programs on six systems, and networks that rank, balance or analyse,
# trained until they stop learning. Two steps:
#
#     tools/lent-models.sh pack STORE [DATA]      here: fill carry/models/; STORE is what `apportion dataset dataflow` made of
#                                                 experiments/corpus-small.toml, DATA the folder of third-party data
#     tools/lent-models.sh run RESULTS SECONDS    there, from the root of a copy of the repository, carry/models with it
#
# `run` ends by itself within SECONDS (470 do); RESULTS/models.tar.gz has everything, made anew after each part, and
# RESULTS/log.txt says what ended how. carry/ must have what tools/carry.sh puts there (site.tar.xz, campaign/_native*.so,
# kernels.npz). Unpacked as runs/lent:
#
#     python -m reproduction collect programs runs/lent/programs --out programs.parquet
#     python -m reproduction tensor-ranking --data ../shared/data/tpugraphs --settings experiments/tensor-ranking-converged.toml \
#         --results runs/lent/tensor-ranking.jsonl
#     python -m reproduction ablation --out runs/lent/ablation
#     python -m reproduction dataflow --settings experiments/dataflow-published.toml --runs runs/lent/runs
#
# DEVICE is cuda unless set to cpu; PYTHON, TRIAL (seconds for a part, to try it all in a minute) and PLANS (a folder that
# takes the place of experiments/) are for such a trial.
set -u
CARRY=${CARRY:-$PWD/carry/models} PYTHON=${PYTHON:-python3} PLANS=${PLANS:-experiments} BEST="(Skips + Ext. Readout) + ProGraML"
export CARRY DEVICE=${DEVICE:-cuda}

pack() { # what no part needs stays here: Polars alone is 33 MB
    set -e
    mkdir -p "$CARRY"
    local site; site=$(mktemp -d)
    tar xJf carry/site.tar.xz -C "$site"
    rm -rf "$site"/{_polars_runtime_32,polars,polars-*,polars_runtime_32-*,pyopencl,pyopencl-*,pytools,pytools-*,siphash24*}
    tar c -C "$site" . | xz -6 > "$CARRY/site.tar.xz"
    cp carry/kernels.npz carry/campaign/_native*.so "$CARRY"
    tar cf "$CARRY/tpugraphs.tar" -C "${2:-../shared/data}" tpugraphs
    tools/lent-networks.sh pack "$1"
    rm -rf "$site"; du -sh "$CARRY"
}

keep() { # all results so far, without what only an interrupted training needs
    tar czf "$RESULTS/models.part" --exclude 'checkpoint*' --exclude '*.claim' --exclude 'worker-*' -C "$WORK" results
    mv "$RESULTS/models.part" "$RESULTS/models.tar.gz"
}

part() { # NAME SECONDS COMMAND…: its output goes to results/NAME.log
    local name=$1 seconds=$2; shift 2
    [ "$seconds" -gt 5 ] || { echo "$name: left out, the time is up"; return; }
    timeout -k 3 "$seconds" "$@" >> "$WORK/results/$name.log" 2>&1
    echo "[$SECONDS s] $name ended with $?"
}

times() { # SYSTEM SECONDS WORDS…; half a minute more, for torch to start and the last run to end
    local system=$1 seconds=${TRIAL:-$2}; shift 2
    part "times-$system" $((seconds + 30)) "$@" "$PYTHON" -m reproduction.collect.program_times measure \
        "$WORK/results/programs" "$system" --seconds "$seconds" $WORDS
    tail -n 2 "$WORK/results/times-$system.log"
}

on_gpu() { # PERCENT SECONDS: of the multiprocessors, through NVIDIA's daemon
    WORDS="--device $DEVICE --threads 1" times "h200-$1" "$2" env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="$1" taskset -c $((CORES - 2))
}

daemon() { # the GPU among processes, and in parts; 1 where that cannot be
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log; mkdir -p /tmp/mps /tmp/mps-log
    [ "$DEVICE" = cpu ] && return 0
    command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d
    for percent in 10 100; do
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$percent timeout 60 "$PYTHON" -c 'import torch
print(torch.cuda.get_device_properties(0).multi_processor_count, "multiprocessors", torch.ones(9, device="cuda").sum().item())'
    done && return 0
    echo quit | timeout 10 nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    return 1
}

run() { # RESULTS SECONDS
    local end=$((SECONDS + $2)) left shared=0 cores
    CORES=$(nproc); [ "$CORES" -ge 16 ] && cores=6-15 || cores=0-$((CORES - 1))
    export WORK=${WORK:-/tmp/apportion-models}; mkdir -p "$1" "$WORK/results/programs" "$WORK/site"; RESULTS=$(readlink -f "$1")
    exec > >(tee -a "$RESULTS/log.txt") 2>&1
    tar xJf "$CARRY/site.tar.xz" -C "$WORK/site"; tar xf "$CARRY/tpugraphs.tar" -C "$WORK"
    compgen -G "src/apportion/_native*.so" > /dev/null || cp "$CARRY"/_native*.so src/apportion/
    export PYTHONPATH=$PWD/src:$PWD:$WORK/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
    daemon || { shared=1; echo "the GPU cannot be shared: no parts of it, and processes take turns"; }
    # Alone on the machine: sixteen cores. Then one and four on cores of their own, beside the GPU.
    OMP_NUM_THREADS=16 WORDS="--threads 16" times xeon-16 75 env; keep
    local running=() # a plain wait would wait for tee, too
    (WORDS="--threads 1" times xeon-1 $((end - SECONDS - 40)) taskset -c 0) & running+=($!)
    (WORDS="--threads 4" times xeon-4 $((end - SECONDS - 40)) env OMP_NUM_THREADS=4 taskset -c $([ "$CORES" -ge 16 ] && echo 2-5 || echo 0)) & running+=($!)
    on_gpu 100 60
    [ $shared = 0 ] && { on_gpu 25 60; on_gpu 10 60; }
    keep
    # The GPU is free now; one and four cores go on, on cores of their own.
    left=$((end - SECONDS - 12)); [ -n "${TRIAL:-}" ] && left=$((TRIAL * 10))
    sed 's/, "xgboost"//; s/device = "cuda"/device = "'"$DEVICE"'"/' "$PLANS/tensor-ranking-converged.toml" > "$WORK/tables.toml"
    sed 's/device = "cuda"/device = "'"$DEVICE"'"/' "$PLANS/converged-networks.toml" > "$WORK/networks.toml"
    (part ablation "$left" taskset -c $cores tools/lent-networks.sh ablation "$WORK/results/ablation" $((left - 4))) & running+=($!)
    for worker in 1 2 3; do
        (part "networks-$worker" "$left" taskset -c $cores "$PYTHON" -m reproduction tensor-ranking --worker $worker/3 \
            --collection experiments/collections/h200-triton --comparison "$WORK/networks.toml" \
            --results "$WORK/results/tensor-ranking.jsonl") & running+=($!)
    done
    for worker in 1 2; do
        (part "tables-$worker" "$left" taskset -c $cores "$PYTHON" -m reproduction tensor-ranking --worker $worker/2 \
            --data "$WORK/tpugraphs" --settings "$WORK/tables.toml" --results "$WORK/results/tensor-ranking.jsonl") & running+=($!)
    done
    (JOBS=${JOBS:-7} part dataflow "$left" taskset -c $cores tools/lent-networks.sh dataflow "$WORK/results" $((left - 4))) & running+=($!)
    for _ in 1 2 3 4 5 6; do
        [ $((end - SECONDS)) -gt 70 ] && [ -n "$(jobs -r)" ] && sleep ${TRIAL:-45} && keep
    done
    wait "${running[@]}"; keep
    echo "[$SECONDS s] done"; ls -l "$RESULTS"
}

networks() { # RESULTS SECONDS: the networks on our own collection alone, eleven at once; the tiles must be carried, too
    local end=$((SECONDS + $2)) running=()
    export WORK=${WORK:-/tmp/apportion-models}; mkdir -p "$1" "$WORK/results" "$WORK/site"; RESULTS=$(readlink -f "$1")
    exec > >(tee -a "$RESULTS/log.txt") 2>&1
    tar xJf "$CARRY/site.tar.xz" -C "$WORK/site"
    compgen -G "src/apportion/_native*.so" > /dev/null || cp "$CARRY"/_native*.so src/apportion/
    export PYTHONPATH=$PWD/src:$PWD:$WORK/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
    daemon || echo "processes take turns"
    sed 's/device = "cuda"/device = "'"$DEVICE"'"/' "$PLANS/converged-networks.toml" > "$WORK/networks.toml"
    for worker in 1 2 3 4 5 6 7 8 9 10 11; do
        (part "networks-$worker" $((end - SECONDS - 3)) "$PYTHON" -m reproduction tensor-ranking --worker $worker/11 \
            --collection experiments/collections/h200-triton --comparison "$WORK/networks.toml" \
            --results "$WORK/results/tensor-ranking.jsonl") & running+=($!)
    done
    wait "${running[@]}"; keep
}

"$@"

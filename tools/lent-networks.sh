#!/bin/bash
# The networks of docs/results/ablation.md and docs/results/dataflow-published.md on a machine with a GPU that is lent for
# minutes:
#
#     tools/lent-networks.sh pack STORE                  here: carry/models/dataflow.tar of what `apportion dataset dataflow` made
#     tools/lent-networks.sh ablation RESULTS SECONDS    there, from the root of a copy of the repository, carry/models with it
#     tools/lent-networks.sh dataflow RESULTS SECONDS
#
# carry/models must have site.tar.xz, _native*.so and kernels.npz (tools/lent-models.sh pack). Both parts end by themselves within
# SECONDS, may run beside others, and go on where they stood when called again; finished units and runs are in RESULTS as they end.
# Unpacked as runs/reproduce/ablation and runs/dataflow-published they are what `python -m reproduction ablation --only page` and
# `python -m reproduction dataflow --settings experiments/dataflow-published.toml` read. DEVICE is cuda unless set to cpu.
set -u
CARRY=${CARRY:-$PWD/carry/models} BEST="(Skips + Ext. Readout) + ProGraML" DEVICE=${DEVICE:-cuda} PYTHON=${PYTHON:-python3}

pack() {
    set -e
    mkdir -p "$CARRY"
    .venv/bin/apportion dataset pack "$1" "$CARRY/dataflow.tar" --megabytes 1000
    rm -rf "$CARRY/dataflow.tar.store"
}

prepare() { # what a part needs, once for both
    WORK=${WORK:-/tmp/apportion-networks}
    mkdir -p "$1" "$WORK"; RESULTS=$(readlink -f "$1")
    if [ ! -e "$WORK/site" ]; then
        mkdir -p "$WORK/site.part.$$" && tar xJf "$CARRY/site.tar.xz" -C "$WORK/site.part.$$"
        mv -T "$WORK/site.part.$$" "$WORK/site" 2> /dev/null
        compgen -G "src/apportion/_native*.so" > /dev/null || cp "$CARRY"/_native*.so src/apportion/
    fi
    export PYTHONPATH=$PWD/src:$PWD:$WORK/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
    share
}

share() { # the GPU among processes, through NVIDIA's daemon; one that another part started is used, and left running
    command -v nvidia-cuda-mps-control > /dev/null || return 0
    export CUDA_MPS_PIPE_DIRECTORY=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/mps} CUDA_MPS_LOG_DIRECTORY=${CUDA_MPS_LOG_DIRECTORY:-/tmp/mps-log}
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    echo get_server_list | timeout 10 nvidia-cuda-mps-control > /dev/null 2>&1 || nvidia-cuda-mps-control -d
    timeout 60 "$PYTHON" -c 'import torch; torch.ones(9, device="cuda").sum().item()' && return 0
    echo "the GPU cannot be shared through the daemon: processes take turns"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

rows() { # NAME JOBS LAST ROW…: in a process group of its own, none begun later than LAST seconds from now
    local name=$1 jobs=$2 last=$3; shift 3
    timeout -k 3 $((END - SECONDS)) "$PYTHON" -m reproduction ablation --packed "$CARRY/kernels.npz" --device "$DEVICE" --only train \
        --folds ${FOLDS:-thesis} --out "$RESULTS" --jobs "$jobs" --seconds "$last" ${PLAN:+--settings "$PLAN"} --rows "$@" \
        >> "$RESULTS/$name.log" 2>&1 &
}

ablation() { # RESULTS SECONDS: three groups at once, each with what matters most first
    END=$((SECONDS + $2)); prepare "$1"
    local left=$((END - SECONDS))
    # 5,100 steps of a few graphs: a unit takes three to five minutes beside others.
    rows small 4 $((left - 200)) "$BEST, batches of 32" "(Diff Pooling (learned) + Ext. Readout) + ProGraML" \
        "$BEST, batches of 32, no dropout in messages" "Diff Pooling (learned) + ProGraML"
    # 900 steps of all graphs: a minute or two.
    rows large 2 $((left - 90)) "$BEST, seed 2" "$BEST, launch" "$BEST, seed 3" "$BEST, forty shufflings" "$BEST, edges both ways"
    # Seven times the states, in units of five folds.
    rows nodes 1 $((left - 110)) "$BEST, dropout node by node"
    wait
    [ $((END - SECONDS)) -gt 120 ] && FOLDS="source application" rows launch 6 $((END - SECONDS - 90)) "$BEST, launch" && wait
    ls "$RESULTS"
}

dataflow() { # RESULTS SECONDS
    END=$((SECONDS + $2)); prepare "$1"
    mkdir -p "$RESULTS/runs"
    [ -e "$WORK/store" ] || "$PYTHON" -c 'from apportion.cli import main; main()' dataset unpack "$CARRY/dataflow.tar" "$WORK/store"
    timeout -k 3 $((END - SECONDS - 8)) "$PYTHON" -m reproduction dataflow --store "$WORK/store" --runs "$RESULTS/runs" \
        --settings "${PLAN:-experiments/dataflow-published.toml}" --out "$RESULTS/dataflow.md" --jobs "${JOBS:-20}" \
        --seconds $((END - SECONDS - 50)) >> "$RESULTS/dataflow.log" 2>&1
    for run in "$RESULTS"/runs/*/evaluation.json; do rm -rf "${run%/*}"/checkpoint*; done
    ls "$RESULTS/runs"
}

case ${1:-} in
pack | ablation | dataflow) "$@" ;;
*) echo "pack, ablation or dataflow, not '${1:-}'" >&2; exit 2 ;;
esac

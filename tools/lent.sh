#!/bin/bash
# The runs behind docs/results that need a GPU, one after the other on a machine that is lent for minutes; from the root
# of a copy of the repository with the carry/ that tools/carry.sh filled:
#
#     tools/lent.sh RESULTS PART=SECONDS…      for instance  tests=60 steps=45 ncu=25 gemm=60 ablation=600 compile=150 prepare=60 campaign=300 together=80 forward=60
#
# Parts run in this order, whatever the order they are named in, each for so many seconds at most. What a part leaves is
# in RESULTS/PART, with log.txt; every part writes as it goes and can be gone on with. `compile` (for campaign) and `ablation`
# share the machine, the others have it to themselves.
set -u
RESULTS=$1; shift
declare -A seconds; for word in "$@"; do seconds[${word%%=*}]=${word#*=}; done
mkdir -p "$RESULTS" /tmp/apportion-site /etc/OpenCL/vendors; RESULTS=$(readlink -f "$RESULTS")
tar xJf carry/site.tar.xz -C /tmp/apportion-site
cp -n carry/campaign/_native*.so src/apportion/
ldconfig -p | grep -q libnvidia-opencl.so.1 && echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd
export PYTHONPATH=$PWD/src:/tmp/apportion-site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
apportion() { python3 -c 'from apportion.cli import main; main()' "$@"; }
export -f apportion
began=$(date +%s)

part() { # NAME COMMAND…: nothing, unless seconds are given for it
    local name=$1; shift
    [ -n "${seconds[$name]:-}" ] || return 0
    mkdir -p "$RESULTS/$name"
    BUDGET=${seconds[$name]} RESULT=$RESULTS/$name timeout -k 3 $((seconds[$name] + 3)) "$@" >> "$RESULTS/$name/log.txt" 2>&1
    local code=$?
    echo "[$(($(date +%s) - began)) s] $name ended with $code"
}
ablation() { # several processes share the GPU through NVIDIA's daemon
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log; mkdir -p /tmp/mps /tmp/mps-log
    nvidia-cuda-mps-control -d
    [ -d carry/ablation ] && cp carry/ablation/*.json "$RESULT"  # units of an earlier lease
    # What the thesis has first; what stands beside it if there is time.
    local published=("Base ProGraML" "Mean Pooling + GAT" "Mean Pooling + ProGraML" "Diff Pooling + ProGraML"
        "TopK Pooling + ProGraML" "Skips + ProGraML" "(Diff Pooling + Ext. Readout) + ProGraML"
        "(TopK Pooling + Ext. Readout) + ProGraML" "(Skips + Ext. Readout) + ProGraML" "ProGraML, device mapping"
        "Mean Pooling + MLP" "Mean Pooling + GCN")
    local until=$(($(date +%s) + BUDGET - 125)) # A unit takes a minute or two: none is begun that would not be finished.
    run() {
        python -m reproduction ablation --packed carry/kernels.npz --device cuda --out "$RESULT" "$@"
    }
    run --only time # before the GPU is shared
    run --jobs 5 --only train --folds thesis source --seconds $((until - $(date +%s))) --rows "${published[@]}"
    [ "$(date +%s)" -lt "$until" ] && run --jobs 5 --only train --seconds $((until - $(date +%s)))
    echo quit | nvidia-cuda-mps-control
}
tests() { # those that are skipped where there is no GPU
    mkdir -p /tmp/apportion-tests; tar xJf carry/tests.tar.xz -C /tmp/apportion-tests
    PYTHONPATH=$PYTHONPATH:/tmp/apportion-tests python3 -m pytest -q -rs -s -p no:cacheprovider -o addopts=--import-mode=importlib -W ignore \
        tests/learn/nn/test_layers.py tests/learn/ranking/test_step.py tests/advise/test_tuning_triton.py
}
gemm() { # none is begun that would not be finished: a graph takes half a minute
    python -m reproduction collect measure xla-gemm --out "$RESULT/xla-gemm" --configurations 110 --seconds 4 --measure-only \
        --measure-seconds $((BUDGET > 45 ? BUDGET - 40 : 1))
}
steps() { python3 -m benchmarks.ranking --device cuda --seconds 0.15 --out "$RESULT/ranking.json"; }
forward() { python3 benchmarks/forward.py --device cuda --out "$RESULT/forward.json"; }
ncu_files() {
    local program='import torch; a = torch.rand(512, 512, device="cuda"); b = a @ a; c = torch.sin(b).sum(); print(float(c))'
    ncu --csv --launch-count 4 --log-file "$RESULT/details.csv" python3 -c "$program"
    ncu --csv --page raw --launch-count 4 --log-file "$RESULT/raw.csv" python3 -c "$program"
}
export -f ablation tests gemm steps forward ncu_files

part tests bash -c tests
part steps bash -c steps
part ncu bash -c ncu_files
part gemm bash -c gemm
part ablation bash -c ablation &
part compile bash -c 'nice -n 10 tools/campaign.sh compile carry/campaign "$RESULT" "$BUDGET"' &
wait
part prepare bash -c 'tools/campaign.sh prepare carry/campaign "$RESULT" "$BUDGET"'
part campaign bash -c 'tools/campaign.sh measure carry/campaign "$RESULT" "$BUDGET"'
part together bash -c 'tools/campaign.sh together carry/campaign "$RESULT" "$BUDGET"'
part forward bash -c forward
echo "[$(($(date +%s) - began)) s] done"

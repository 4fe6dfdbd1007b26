#!/bin/bash
# Sessions beside plain pyopencl and StarPU on a machine that is lent for minutes; from the root of a copy of the
# repository with the carry/ that tools/carry-programs.sh filled:
#
#     tools/lent-programs.sh RESULTS [SECONDS]      for instance  tools/lent-programs.sh "$OUT" 470
#
# In so many seconds, 470 if none are given: the launch path on the GPU and the CPU, first calls in new processes, the
# thirteen programs (a session, all on the GPU, all on the CPU, the best assignment found), the same by StarPU, and every
# cut of the suite's kernels with 4 and 8 of the processors (a machine confined to few of them is one too).
# Whatever is done is in RESULTS; every part writes as it goes, and RESULTS/programs.tar.gz has everything. SIZE=small
# tries it all in a minute.
set -u
RESULTS=$1 TOTAL=${2:-470} SIZE=${SIZE:-usual} WORK=/tmp/apportion-programs
RECORDED=; [ "$SIZE" = small ] && RECORDED="--small --repeat 1"
mkdir -p "$RESULTS" /tmp/apportion-site "$WORK"; RESULTS=$(readlink -f "$RESULTS")
began=$(date +%s)
if [ -e carry/site.tar.xz ]; then
    tar xJf carry/site.tar.xz -C /tmp/apportion-site
    cp -n carry/campaign/_native*.so src/apportion/ 2>/dev/null
    export PYTHONPATH=$PWD/src:$PWD:/tmp/apportion-site
fi
if ldconfig -p | grep -q libnvidia-opencl.so.1; then
    mkdir -p /etc/OpenCL/vendors; echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd
fi
export PYTHONUNBUFFERED=1 APPORTION_CACHE=${APPORTION_CACHE:-/tmp/apportion-cache} PYTHON=${PYTHON:-python3}
DEVICES=${DEVICES:-cpu gpu} IR=(--ir carry/programs/ir.json)
left() { echo $((TOTAL - ($(date +%s) - began))); }
part() { # NAME SECONDS COMMAND…: its output is in RESULTS/NAME.txt
    local name=$1 seconds=$2; shift 2
    [ "$seconds" -gt 5 ] || { echo "[$(left) s left] no time for $name"; return; }
    timeout -k 3 "$seconds" "$@" > "$WORK/$name.txt" 2>&1
    local code=$?
    echo "[$(left) s left] $name ended with $code"
    tail -n 6 "$WORK/$name.txt"
    tar czf "$RESULTS/programs.part" -C "$WORK" . && mv "$RESULTS/programs.part" "$RESULTS/programs.tar.gz"
}
recording() { # PROCESSORS SECONDS: calibrating, and every cut of the suite's kernels, confined to so many processors
    local cores="taskset -c 0-$(($1 - 1))" seconds=$2
    export APPORTION_CACHE=/tmp/apportion-cache-$1 APPORTION_HOME=/tmp/apportion-home-$1
    part "devices-$1" 60 $cores $PYTHON -c 'from apportion.cli import main; main()' devices --json
    part "recording-$1" "$((seconds + 25))" $cores $PYTHON -m reproduction.campaign.steps suite carry/campaign "$WORK" \
        efficiency --out "$WORK/recording-$1" --budget 1 --total "$seconds" $RECORDED
}
{ uname -a; nproc; nvidia-smi -L; lscpu | grep 'Model name'; } > "$WORK/machine.txt" 2>&1

part devices 110 $PYTHON -c 'from apportion.cli import main; main()' devices --json
for device in $DEVICES; do
    part "launchpath-$device" 45 $PYTHON -m benchmarks.launchpath --device "$device" --json "${IR[@]}"
done
SHARED=$((TOTAL * 36 / 100)) # of the time, for the recordings
[ -x carry/programs/starpu_replay ] && starpu=$((TOTAL / 5)) || starpu=0
programs=$(($(left) - starpu - SHARED - 10))
part programs "$programs" $PYTHON -m benchmarks.programs --devices $DEVICES --size "$SIZE" "${IR[@]}" \
    --seconds $((programs > 60 ? programs - 25 : programs / 2)) --out "$WORK/programs.jsonl" ${MORE:-}
part programs-table 20 $PYTHON -m benchmarks.programs --table "$WORK/programs.jsonl"
if [ "$starpu" -gt 0 ]; then
    starpu=$(($(left) - SHARED - 5))
    part starpu "$starpu" env LD_LIBRARY_PATH="$PWD/carry/programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        $PYTHON -m benchmarks.starpu --replay carry/programs/starpu_replay --size "$SIZE" \
        "${IR[@]}" --seconds "$((starpu > 60 ? starpu - 25 : starpu / 2))" --out "$WORK/starpu.jsonl"
fi
for processors in ${PROCESSORS:-4 8}; do recording "$processors" $((SHARED / 2 - 20)); done
echo "[$(left) s left] done"

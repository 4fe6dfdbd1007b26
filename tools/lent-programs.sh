#!/bin/bash
# Sessions beside plain pyopencl and StarPU on a machine that is lent for minutes; from the root of a copy of the
# repository with the carry/ that tools/carry-programs.sh filled:
#
#     tools/lent-programs.sh RESULTS [SECONDS]      for instance  tools/lent-programs.sh "$OUT" 470
#
# In so many seconds, 470 if none are given: the launch path on the GPU and the CPU, first calls in new processes, the
# thirteen programs (a session, all on the GPU, all on the CPU, the best assignment found), and the same by StarPU.
# Whatever is done is in RESULTS; every part writes as it goes. SIZE=small tries it all in a minute.
set -u
RESULTS=$1 TOTAL=${2:-470} SIZE=${SIZE:-usual}
mkdir -p "$RESULTS" /tmp/apportion-site; RESULTS=$(readlink -f "$RESULTS")
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
    timeout -k 3 "$seconds" "$@" > "$RESULTS/$name.txt" 2>&1
    echo "[$(left) s left] $name ended with $?"
    tail -n 6 "$RESULTS/$name.txt"
}
{ uname -a; nproc; nvidia-smi -L; lscpu | grep 'Model name'; } > "$RESULTS/machine.txt" 2>&1

part devices 110 $PYTHON -c 'from apportion.cli import main; main()' devices --json
for device in $DEVICES; do
    part "launchpath-$device" 45 $PYTHON -m benchmarks.launchpath --device "$device" --json "${IR[@]}"
done
starpu=0
[ -x carry/programs/starpu_replay ] && starpu=$((TOTAL / 4))
programs=$(($(left) - starpu - 10))
part programs "$programs" $PYTHON -m benchmarks.programs --devices $DEVICES --size "$SIZE" "${IR[@]}" \
    --seconds $((programs > 60 ? programs - 25 : programs / 2)) --out "$RESULTS/programs.jsonl" ${MORE:-}
part programs-table 20 $PYTHON -m benchmarks.programs --table "$RESULTS/programs.jsonl"
if [ "$starpu" -gt 0 ]; then
    export LD_LIBRARY_PATH=$PWD/carry/programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    part starpu "$(($(left) - 5))" $PYTHON -m benchmarks.starpu --replay carry/programs/starpu_replay --size "$SIZE" \
        "${IR[@]}" --seconds "$(($(left) > 60 ? $(left) - 30 : $(left) / 2))" --out "$RESULTS/starpu.jsonl"
fi
echo "[$(left) s left] done"

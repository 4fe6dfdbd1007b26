#!/bin/bash
# Sessions beside plain pyopencl and StarPU, and what launches draw, on a machine that is lent for minutes; from the root
# of a copy of the repository with the carry/programs that tools/carry-programs.sh filled:
#
#     tools/lent-programs.sh RESULTS [SECONDS]      for instance  tools/lent-programs.sh "$OUT" 470
#
# In so many seconds, 470 if none are given: calibrating and launching confined to 4 processors; the launch path on the
# CPU and the GPU; first calls in new processes; the thirteen programs (a session, all on the GPU, all on the CPU, the best
# assignment found), the same by StarPU; time and power of the suite's kernels under cuts; and every cut of them with 4
# and 8 of the processors. What a part leaves of its time is for those after it.
# Whatever is done is in RESULTS; every part writes as it goes, and RESULTS/programs.tar.gz has everything. SIZE=small
# tries it all in some minutes. ONLY="programs starpu" does these parts alone, in all of the time.
set -u
RESULTS=$1 TOTAL=${2:-470} SIZE=${SIZE:-usual} WORK=${WORK:-/tmp/apportion-programs}
INSTANCES=; [ "$SIZE" = small ] && INSTANCES=--small
REPEATED=; [ "$SIZE" = small ] && REPEATED="--repeat 1"
mkdir -p "$RESULTS" "$WORK/site"; RESULTS=$(readlink -f "$RESULTS")
began=$(date +%s)
for site in carry/programs/site.tar.xz carry/site.tar.xz; do
    if [ -e "$site" ]; then
        tar xJf "$site" -C "$WORK/site"
        cp -n carry/campaign/_native*.so src/apportion/ 2>/dev/null
        export PYTHONPATH=$PWD/src:$PWD:$WORK/site
        break
    fi
done
if ldconfig -p | grep -q libnvidia-opencl.so.1; then
    mkdir -p /etc/OpenCL/vendors; echo libnvidia-opencl.so.1 > /etc/OpenCL/vendors/nvidia.icd
fi
export PYTHONUNBUFFERED=1 PYTHON=${PYTHON:-python3}
export APPORTION_CACHE=${APPORTION_CACHE:-$WORK/cache} APPORTION_HOME=${APPORTION_HOME:-$WORK/home}
DEVICES=${DEVICES:-cpu gpu} PACKED=carry/programs/ir.json; IR=(--ir "$PACKED")
APPORTION=(-c 'from apportion.cli import main; main()') # without packages' entry points there is no `apportion`
mkdir -p "$WORK/results"
left() { echo $((TOTAL - ($(date +%s) - began))); }
least() { echo $(($1 < $2 ? $1 : $2)); }
wanted() { [ -z "${ONLY:-}" ] || [[ " $ONLY " = *" ${1%%-*} "* || " $ONLY " = *" $1 "* ]]; }
part() { # NAME SECONDS COMMAND…: its output is in RESULTS/NAME.txt
    local name=$1 seconds=$2 start; shift 2; start=$(date +%s)
    wanted "$name" || return
    [ "$seconds" -gt 5 ] || { echo "[$(left) s left] no time for $name"; return; }
    timeout -k 3 "$seconds" "$@" > "$WORK/results/$name.txt" 2>&1
    local code=$?
    echo "$name ended with $code after $(($(date +%s) - start)) s" | tee -a "$WORK/results/parts.log"
    tail -n 3 "$WORK/results/$name.txt" | cut -c1-300
    tar czf "$RESULTS/programs.part" -C "$WORK/results" . && mv "$RESULTS/programs.part" "$RESULTS/programs.tar.gz"
    echo "[$(left) s left]"
}
confined() { # PROCESSORS COMMAND…: with a cache of its own
    local processors=$1; shift
    APPORTION_CACHE=$WORK/cache-$processors APPORTION_HOME=$WORK/home-$processors "$@"
}
cores() { echo "taskset -c 0-$(($1 - 1))"; }
{ uname -a; nproc; nvidia-smi -L; nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv; lscpu | grep -E 'Model name|^CPU\(s\)|Thread'
  ls /sys/class/powercap; python3 -V; } > "$WORK/results/machine.txt" 2>&1

LIMITED=${PROCESSORS:-4 8}
for processors in ${LIMITED%% *}; do
    confined "$processors" part "devices-$processors" 45 $(cores "$processors") $PYTHON "${APPORTION[@]}" devices --json
done
part devices 60 $PYTHON "${APPORTION[@]}" devices --json
for device in $DEVICES; do
    part "launchpath-$device" 40 $PYTHON -m benchmarks.launchpath --device "$device" --json "${IR[@]}"
done
part first-call 45 $PYTHON -m benchmarks.first_call --turns 5 --seconds 30 --json "${IR[@]}"
# Of the whole time; programs get what these leave.
RECORDINGS=$((TOTAL * 18 / 100)) ENERGY=$((TOTAL * 17 / 100)) STARPU=$((TOTAL * ${STARPU_PERCENT:-19} / 100))
wanted recording || RECORDINGS=0
wanted energy || ENERGY=0
{ [ -x carry/programs/starpu_replay ] && wanted starpu; } || STARPU=0
programs=$(($(left) - STARPU - ENERGY - RECORDINGS - 8))
part programs "$programs" $PYTHON -m benchmarks.programs --devices $DEVICES --size "$SIZE" "${IR[@]}" \
    --each "${EACH:-1.8}" --seconds $((programs > 60 ? programs - 15 : programs / 2)) --out "$WORK/results/programs.jsonl" ${MORE:-}
part programs-table 20 $PYTHON -m benchmarks.programs --table "$WORK/results/programs.jsonl"
if [ "$STARPU" -gt 0 ]; then
    starpu=$(($(left) - ENERGY - RECORDINGS - 6))
    part starpu "$starpu" env LD_LIBRARY_PATH="$PWD/carry/programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        $PYTHON -m benchmarks.starpu --replay carry/programs/starpu_replay --size "$SIZE" \
        "${IR[@]}" --seconds "$((starpu > 60 ? starpu - 12 : starpu / 2))" --out "$WORK/results/starpu.jsonl"
fi
energy=$(least $(($(left) - RECORDINGS - 4)) $((2 * ENERGY)))
part energy "$energy" $PYTHON -m reproduction.packed_ir "$PACKED" energy ${INSTANCES:---large} \
    --devices "${DEVICES// /,}" --total "$((energy - 10))" --out "$WORK/results/energy"
count=$(echo $LIMITED | wc -w)
for processors in $LIMITED; do
    seconds=$((($(left) - 4) / count)); count=$((count - 1))
    confined "$processors" part "recording-$processors" "$seconds" $(cores "$processors") $PYTHON -m reproduction.packed_ir \
        "$PACKED" efficiency --out "$WORK/results/recording-$processors" --budget 1 --total "$((seconds - 12))" \
        $INSTANCES $REPEATED
done
echo "[$(left) s left] done"

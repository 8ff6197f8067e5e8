#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What only a GPU can show, and what it cannot be shown here.
#
#   tests/gpu/run.sh check|bench [FOLDER]     logs and results go to FOLDER (default build/gpu, in the kit: results)
#
# From the tree with BUILD=build/gcc, as make check-gpu and make bench-gpu do; in the kit of make gpu-kit it finds all
# beside itself. DILOCO_GPU says which GPU, default 0. No setting of the GPU is changed. All is done within
# DILOCO_GPU_SECONDS (default 480): what there was no time for is listed as not run, and is no failure. Exit status: 0,
# 1 if anything failed, 77 if there is no GPU to run on. In the kit all that was written is in FOLDER/results.tgz, too,
# however it ends, but for SIGKILL: a machine with a GPU may be had for minutes only.
set -u
begin_all=$(date +%s)
seconds_in_all=${DILOCO_GPU_SECONDS:-480}
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-}
case $what in check | bench) ;; *) echo "usage: $0 check|bench [FOLDER]"; exit 2 ;; esac
in_kit=
[ ! -d "$here/bin" ] || in_kit=yes
if [ -n "$in_kit" ]; then
    BUILD=$here/bin
    out=${2:-$here/results}
    commit=$(cat "$here/commit")
    tree=$here/tree
else
    : "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
    BUILD=$(cd "$BUILD" && pwd)
    out=${2:-build/gpu}
    commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
    tree=$(pwd)
fi
export BUILD
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
: >"$out/$what.txt" # what is said below

# ---- the end ----

child= # what runs now, in the background, so that a signal is heard at once
pack() {
    [ -n "$in_kit" ] || return 0
    # Beside the folder: one that gets a file while it is read "changed", and tar fails.
    (rm -f "$out/results.tgz" && tar -czf "$out.tgz" -C "$out" . && mv "$out.tgz" "$out/results.tgz") ||
        echo "$out: what was written cannot be packed"
}
trap pack EXIT
# Ends what runs, which `timeout` passes on to all that it has started.
ended_by() { # signal's number
    [ -z "$child" ] || { kill "$child" 2>/dev/null; wait "$child" 2>/dev/null; }
    say "ended by a signal after $(($(date +%s) - begin_all)) s; what was done until then is in $out"
    exit $((128 + $1))
}
trap 'ended_by 1' HUP
trap 'ended_by 2' INT
trap 'ended_by 15' TERM
say() { printf '%s\n' "$1" | tee -a "$out/$what.txt"; }
unset TEST_FILTER

# ---- the machine ----

# Numbers with points, as 2.36: whether the first is less than the second.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -t. -k1,1n -k2,2n | head -n 1)" = "$1" ]; }
if [ -n "$in_kit" ]; then
    needs=$(cat "$here/glibc")
    has=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
    if [ -z "$has" ] || older "$has" "$needs"; then
        echo "this kit needs glibc $needs or newer, and this machine has ${has:-another C library}: build the kit on an older distribution"
        exit 1
    fi
fi

# cuBLASLt, NCCL and cuDNN are not in the kit: the toolkit's, or those that Python has.
export DILOCO_GPU_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# 91900 for 9.19.0, as the library itself says, else the name of the file behind its link; 0: neither tells.
cudnn_version() { # folder
    LD_LIBRARY_PATH=$1 python3 -c 'import ctypes, sys
version = ctypes.CDLL(sys.argv[1]).cudnnGetVersion
version.restype = ctypes.c_size_t
print(version())' "$1/libcudnn.so.9" 2>/dev/null ||
        basename "$(readlink -f "$1/libcudnn.so.9")" | awk -F. '{ print ($NF ~ /^[0-9]+$/ && NF > 4 ? $(NF - 2) * 10000 + $(NF - 1) * 100 + $NF : 0) }'
}
cublas= nccl= cudnn= cudnn_newest=-1
look_for_cudnn() { # folder
    [ -e "$1/libcudnn.so.9" ] || return 0
    version=$(cudnn_version "$1")
    if [ "${version:-0}" -gt "$cudnn_newest" ]; then cudnn=$1 cudnn_newest=${version:-0}; fi
}
for folder in /usr/local/cuda/lib64 /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/*/lib /opt/cuda/lib64 \
    $(python3 -c 'import glob, site, sys
for root in site.getsitepackages() + [site.getusersitepackages()] + sys.path:
    print(*glob.glob(root + "/nvidia/*/lib"), sep="\n")' 2>/dev/null); do
    if [ -z "$cublas" ] && [ -e "$folder/libcublasLt.so.13" ]; then cublas=$folder; fi
    if [ -z "$nccl" ] && [ -e "$folder/libnccl.so.2" ]; then nccl=$folder; fi
    look_for_cudnn "$folder"
done
# The system often has an older cuDNN than Python: of all that the loader could find, too, it is the newest.
for folder in $(echo "$DILOCO_GPU_LIBRARY_PATH" | tr ':' ' ') \
    $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n 's,^.*=> \(.*\)/libcudnn\.so\.9$,\1,p'); do
    look_for_cudnn "$folder"
done
libraries=$DILOCO_GPU_LIBRARY_PATH
[ -z "$nccl" ] || [ "$nccl" = "$cublas" ] || libraries=$nccl${libraries:+:$libraries}
[ -z "$cublas" ] || [ "$cublas" = "$cudnn" ] || libraries=$cublas${libraries:+:$libraries}
# Before them, as their folders may have a cuDNN as well.
[ -z "$cudnn" ] || libraries=$cudnn${libraries:+:$libraries}
[ -z "$in_kit" ] || libraries=$here/lib${libraries:+:$libraries}
ours() { LD_LIBRARY_PATH=$libraries "$@"; }

# ---- parts ----

passed=0 failed=0 skipped=0 not_run=0
line() { say "$(printf '%-8s %-34s %7s   %s' "$1" "$2" "$3" "$4" | sed 's/ *$//')"; }
fail_line() { line FAIL "$1" "$2" "$3"; failed=$((failed + 1)); }
not_run() { line 'not run' "$1" '' "$2"; not_run=$((not_run + 1)); }

# Seconds until all has to be done, less those that timeout waits for what does not end when it is told to.
left() { echo $((begin_all + seconds_in_all - 5 - $(date +%s))); }

# Name of the part, seconds it may take, command. Its output goes to a file of that name.
part() {
    name=$1 own_limit=$2
    shift 2
    log=$out/$(echo "$name" | tr A-Z a-z | tr -cs 'a-z0-9\n' -).log
    limit=$(left)
    [ "$limit" -gt 0 ] || { not_run "$name" "no time left"; return; }
    [ "$limit" -lt "$own_limit" ] || limit=$own_limit
    begin=$(date +%s)
    LD_LIBRARY_PATH=$libraries timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
    child=$!
    wait "$child"
    status=$? child=
    seconds=$(($(date +%s) - begin))
    took="$seconds s"
    case $status in
    124 | 137) # Ended before its own limit, it has failed at nothing.
        if [ "$limit" -lt "$own_limit" ] && [ $seconds -ge "$limit" ]; then
            not_run "$name" "no time left: ended after $limit s"
            return
        fi ;;
    esac
    case $status in
    0) line pass "$name" "$took" "$(grep -a -m1 '^skip: ' "$log")"; passed=$((passed + 1)) ;;
    77) line skipped "$name" '' "$(tail -n 1 "$log" | sed 's/^skipped: //')"; skipped=$((skipped + 1)) ;;
    124 | 137) fail_line "$name" "$took" "not done within $limit s; $log" ;;
    *)
        fail_line "$name" "$took" "exit status $status; $log ends with:"
        say "$(tail -n 15 "$log" | sed 's/^/         | /')" ;;
    esac
}

# Where there is no GPU, in the library's own words.
ours "$BUILD/tests/gpu/bench_gpu" --help >"$out/starts.log" 2>&1 || { cat "$out/starts.log"; exit 1; }
export DILOCO_GPU_NEEDED=yes
said=$(ours timeout -k 5 60 "$BUILD/tests/gpu/gpu_there" 2>&1)
status=$?
say "$said"
case $status in
0) ;;
77) exit 77 ;;
124 | 137) echo "the GPU has not opened within 60 s"; exit 1 ;;
*) exit 1 ;;
esac
case $cudnn_newest in
-1) say "no cuDNN: libcudnn.so.9 is not in the toolkit, nor with Python, nor where the loader looks" ;;
0) say "cuDNN of an unknown version: $cudnn" ;;
*) say "cuDNN $((cudnn_newest / 10000)).$((cudnn_newest / 100 % 100)).$((cudnn_newest % 100)): $cudnn" ;;
esac

# compute-sanitizer: both together in less than three minutes; the program begins no case when its time is up, and has
# 20 s to end the last one.
sanitize() { # tool, seconds
    has=$(($(left) - 20))
    [ $has -lt "$2" ] || has=$2
    [ $has -gt 0 ] || { not_run "compute-sanitizer $1" "no time left"; return; }
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda-*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    if [ -z "$tool" ]; then
        line skipped "compute-sanitizer $1" '' "compute-sanitizer is not in PATH nor in /usr/local/cuda/bin"
        skipped=$((skipped + 1))
        return
    fi
    part "compute-sanitizer $1" $(($2 + 20)) "$tool" --tool "$1" --error-exitcode 9 "$BUILD/tests/gpu/test_kern_gpu" $has
}

# Whether there is a GPU 1, too.
two_gpus() { ours env DILOCO_GPU=1 DILOCO_GPU_NEEDED= timeout -k 5 60 "$BUILD/tests/gpu/gpu_there" >"$out/second.log" 2>&1; }
nccl_between() {
    if [ "$(left)" -le 0 ]; then
        not_run 'NCCL between GPUs' "no time left"
    elif two_gpus; then
        part 'NCCL between GPUs' 60 "$BUILD/tests/gpu/test_nccl_gpu" two
    else
        not_run 'NCCL between GPUs' "needs two GPUs"
    fi
}

# What tells most in little time comes first.
check() {
    part 'kernels' 120 "$BUILD/tests/gpu/test_kern_gpu"
    part "attention by cuDNN" 150 "$BUILD/tests/gpu/test_attention_gpu"
    part 'models, resumed, their memory' 90 "$BUILD/tests/gpu/test_model_gpu"
    part 'dp 2 on one GPU' 60 "$BUILD/tests/gpu/test_ranks_gpu" dp
    part 'tp 2 on one GPU' 60 "$BUILD/tests/gpu/test_ranks_gpu" tp
    part 'dp 2 x tp 2 on one GPU' 60 "$BUILD/tests/gpu/test_ranks_gpu" both
    part 'NCCL with one rank' 60 "$BUILD/tests/gpu/test_nccl_gpu"
    nccl_between
    part 'Python package on a GPU' 200 "$here/python.sh" "$tree"
    part 'two islands on one GPU' 120 "$here/islands.sh" cuda cuda
    part 'an island on a GPU, one on a CPU' 120 "$here/islands.sh" cuda cpu
    sanitize memcheck 65
    sanitize racecheck 65
}

bench() {
    limit=$(left)
    [ "$limit" -gt 15 ] || { not_run 'bench' "no time left"; return; }
    LD_LIBRARY_PATH=$libraries timeout -k 5 "$limit" "$BUILD/tests/gpu/bench_gpu" --seconds $((limit - 15)) --commit "$commit" \
        --torch "$here/torch_model.py" --out "$out/gpu-bench.json" >"$out/bench.log" 2>&1 &
    child=$!
    tail -f -s 0.2 --pid=$child -n +1 "$out/bench.log" &
    shown=$!
    wait "$child"
    child=
    wait "$shown"
    if grep -q '"complete": true' "$out/gpu-bench.json" 2>/dev/null; then
        passed=1
    else
        fail_line bench '' "$out/bench.log; what was measured until then: $out/gpu-bench.json"
    fi
}

[ $what = check ] || rm -f "$out/gpu-bench.json"
$what
say "$passed passed, $failed failed, $skipped skipped, $not_run not run in $(($(date +%s) - begin_all)) s; logs: $out"
[ $failed = 0 ] && [ $passed -gt 0 ]

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run.sh with programs that only play: what each may take, what is listed as not run, counts and exit status.
# Time is played, too: `date` says what a file holds, and `timeout` adds to it what the program would have taken.
set -eu
root=$PWD
dir=$root/$BUILD/test-data/gpu-run-$$
trap 'rm -rf "$dir"' EXIT
fail() { echo "$1"; cat "$dir/said" "$dir/limits"; exit 1; }
mkdir -p "$dir/build/tests/gpu" "$dir/path" "$dir/tests/gpu" "$dir/takes"
cp tests/gpu/run.sh "$dir/tests/gpu/"
export dir

cat >"$dir/path/date" <<'END'
#!/bin/sh
cat "$dir/now"
END
# -k 5 LIMIT PROGRAM...: a file of the program's name holds how many seconds it takes, and its exit status.
cat >"$dir/path/timeout" <<'END'
#!/bin/sh
limit=$3
shift 3
case $1 in
*/bench_gpu) echo "bench $limit" >>"$dir/limits"; exec "$@" ;;
*/gpu_there) exec "$@" ;;
*/compute-sanitizer) name=$3 ;;
*/islands.sh) name=islands-$3 ;;
*) name=$(basename "$1")${2:+-$2} ;;
esac
echo "$name $limit" >>"$dir/limits"
echo "$LD_LIBRARY_PATH" >"$dir/libraries"
seconds=1 status=0
[ ! -f "$dir/takes/$name" ] || read -r seconds status <"$dir/takes/$name"
[ $seconds -le $limit ] || { seconds=$limit; status=124; }
echo $(($(cat "$dir/now") + seconds)) >"$dir/now"
[ $status != 77 ] || echo "skipped: for a reason"
exit $status
END
cat >"$dir/build/tests/gpu/gpu_there" <<'END'
#!/bin/sh
[ "${DILOCO_GPU:-0}" -lt "$(cat "$dir/gpus")" ] || { echo "skipped: no such GPU"; exit 77; }
echo "GPU"
END
cat >"$dir/build/tests/gpu/bench_gpu" <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do
    [ "$1" != --out ] || cp "$dir/json" "$2"
    [ "$1" != --seconds ] || echo "seconds $2" >>"$dir/limits"
    shift
done
END
printf '#!/bin/sh\n' >"$dir/path/compute-sanitizer"
chmod +x "$dir"/path/* "$dir"/build/tests/gpu/*

run() { # what, seconds in all (empty: as it is), GPUs; the status that is expected
    echo 1000 >"$dir/now"
    echo "$3" >"$dir/gpus"
    : >"$dir/limits"
    status=0
    (cd "$dir" && PATH=$dir/path:$PATH BUILD=$dir/build DILOCO_GPU=0 DILOCO_GPU_SECONDS=$2 tests/gpu/run.sh "$1" "$dir/out") \
        >"$dir/said" 2>&1 || status=$?
    [ $status = "$4" ] || fail "$1, ${2:-480} s, $3 GPUs: exit status $status, not $4"
}
takes() { # seconds, exit status, programs
    takes="$1 $2"
    shift 2
    for name in "$@"; do echo "$takes" >"$dir/takes/$name"; done
}
says() { grep -q "$1" "$dir/said" || fail "it does not say: $1"; }
may_take() { grep -qx "$1" "$dir/limits" || fail "no such limit: $1"; }

# No GPU; and where all goes well.
run check '' 0 77
run check '' 1 0
says '^not run  NCCL between GPUs  *needs two GPUs$'
says '^12 passed, 0 failed, 0 skipped, 1 not run in 12 s'
may_take 'test_kern_gpu 120'
may_take 'memcheck 85'
run check '' 2 0
says '^13 passed, 0 failed, 0 skipped, 0 not run in 13 s'

# Of several cuDNNs the newest comes first, be it where LD_LIBRARY_PATH says or the system's.
cudnn() { # folder, version, as 9.98.0: with a link to the file's name, as packages have it
    mkdir -p "$dir/$1"
    number=$(echo "$2" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
    printf 'unsigned long cudnnGetVersion(void);\nunsigned long cudnnGetVersion(void) { return %s; }\n' "$number" >"$dir/cudnn.c"
    ${CC:-cc} -shared -fPIC -o "$dir/$1/libcudnn.so.$2" "$dir/cudnn.c"
    ln -sf "libcudnn.so.$2" "$dir/$1/libcudnn.so.9"
}
printf '#!/bin/sh\necho "	libcudnn.so.9 (libc6,x86-64) => $dir/system/libcudnn.so.9"\n' >"$dir/path/ldconfig"
chmod +x "$dir/path/ldconfig"
cudnn system 9.97.1
cudnn told 9.98.0
export LD_LIBRARY_PATH="$dir/told"
run check '' 1 0
says "^cuDNN 9.98.0: $dir/told$"
grep -q "^$dir/told:" "$dir/libraries" || fail "LD_LIBRARY_PATH of a part: $(cat "$dir/libraries")"
cudnn system 9.99.2
run check '' 1 0
says "^cuDNN 9.99.2: $dir/system$"
grep -q "^$dir/system:" "$dir/libraries" || fail "LD_LIBRARY_PATH of a part: $(cat "$dir/libraries")"
if command -v python3 >/dev/null; then # without a version in its name, as pip has it
    mv "$dir/told/libcudnn.so.9.98.0" "$dir/told/libcudnn.so.9"
    rm "$dir/system/libcudnn.so.9"
    run check '' 1 0
    says "^cuDNN 9.98.0: $dir/told$"
fi
unset LD_LIBRARY_PATH
rm "$dir/path/ldconfig"

# What fails, hangs or is skipped counts as that, and the others run.
takes 3 1 test_model_gpu
takes 1000 0 test_ranks_gpu-dp
takes 1 77 test_nccl_gpu
run check '' 1 1
says '^FAIL  *models, resumed, their memory  *3 s  *exit status 1'
says '^FAIL  *dp 2 on one GPU  *60 s  *not done within 60 s'
says '^skipped  *NCCL with one rank  *for a reason'
says '^9 passed, 2 failed, 1 skipped, 1 not run'
rm "$dir"/takes/*

# Time that runs out: the limit is what is left, and what is ended by that has not failed.
takes 55 0 test_kern_gpu test_model_gpu test_ranks_gpu-dp test_ranks_gpu-tp
takes 1000 0 test_ranks_gpu-both
run check 250 1 0
may_take 'test_ranks_gpu-both 24'
says '^not run  dp 2 x tp 2 on one GPU  *no time left: ended after 24 s$'
says '^not run  NCCL between GPUs  *no time left$'
says '^not run  compute-sanitizer racecheck  *no time left$'
says '^5 passed, 0 failed, 0 skipped, 8 not run in 245 s'
takes 1000 0 test_kern_gpu test_model_gpu test_ranks_gpu-dp test_ranks_gpu-tp test_ranks_gpu-both test_nccl_gpu \
    islands-cuda islands-cpu memcheck racecheck
run check '' 1 1
[ "$(cat "$dir/now")" -le 1480 ] || fail "it has taken longer than 480 s"
run check 1 1 1
says '^0 passed, 0 failed, 0 skipped, 13 not run'

# The figures: all, or what there is of them.
echo '{"complete": true}' >"$dir/json"
run bench '' 1 0
may_take 'bench 475'
may_take 'seconds 460'
echo '{"complete": false}' >"$dir/json"
run bench '' 1 1
says '^FAIL  *bench .*what was measured until then'
run bench 15 1 1
says '^not run  bench  *no time left$'

# The kit packs what was written, also where it is ended: a part that would take minutes, and a signal after a second.
kit=$dir/kit
mkdir -p "$kit/bin/tests/gpu"
cp tests/gpu/run.sh "$kit/"
cp "$dir"/build/tests/gpu/* "$kit/bin/tests/gpu/"
echo 0.1 >"$kit/glibc"
echo commit >"$kit/commit"
echo 1 >"$dir/gpus"
rm -f "$dir"/takes/*
echo 1000 >"$dir/now"
packed() { tar -tzf "$kit/results/results.tgz" | grep -qx "./$1" || fail "results.tgz has no $1"; }
PATH=$dir/path:$PATH "$kit/run.sh" check >"$dir/said" 2>&1 || fail "the kit's run fails"
packed check.txt
packed kernels.log
tar -xzOf "$kit/results/results.tgz" ./check.txt | grep -q '^12 passed' || fail "results.tgz does not say what came of it"
cp "$dir/path/timeout" "$dir/timeout"
cat >"$dir/path/timeout" <<'END'
#!/bin/sh
case $* in */test_model_gpu*) echo begun; exec sleep 300 ;; esac
exec "$dir/timeout" "$@"
END
rm -rf "$kit/results"
PATH=$dir/path:$PATH "$kit/run.sh" check >"$dir/said" 2>&1 &
pid=$!
until grep -q begun "$kit"/results/models*.log 2>/dev/null; do sleep 0.05; done
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status = 143 ] || fail "exit status $status after SIGTERM"
says '^ended by a signal'
packed 'models-resumed-their-memory.log'
tar -xzOf "$kit/results/results.tgz" ./check.txt | grep -q '^pass  *kernels' || fail "results.tgz does not say what was done before the signal"

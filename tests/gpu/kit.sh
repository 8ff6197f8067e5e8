#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make gpu-kit: tests/gpu as a folder, and as one archive, that runs on a machine of another distribution, with a driver and CUDA 13 only.
#
#   tests/gpu/kit.sh BUILD KIT     from the root of the tree, when everything is built
set -eu
build=$1 kit=$2
most_mb=60 most_packed_mb=20
programs="dilocod dilococtl diloco-worker tests/gpu/gpu_there tests/gpu/test_kern_gpu tests/gpu/test_attention_gpu tests/gpu/test_model_gpu tests/gpu/test_ranks_gpu tests/gpu/test_nccl_gpu tests/gpu/bench_gpu"
libraries="libdiloco-cuda.so libdiloco.so.0"

rm -rf "$kit"
mkdir -p "$kit/bin/tests/gpu" "$kit/lib"
for file in $programs $libraries; do
    strip -o "$kit/bin/$file" "$build/$file"
done
# What they need, and what that needs, less what comes with every glibc, and the driver's.
for file in $programs $libraries; do ldd "$build/$file"; done |
    awk '/not found/ { print "not found: " $1 >"/dev/stderr"; bad = 1 } $2 == "=>" && $3 ~ /^\// { print $3 } END { exit bad }' |
    sort -u | while IFS= read -r library; do
    case ${library##*/} in
    ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.* | libgcc_s.so.*) ;;
    libcuda.so.* | libnvidia-*) ;;
    *) strip --strip-unneeded -o "$kit/lib/${library##*/}" "$(readlink -f "$library")" 2>/dev/null || cp -L "$library" "$kit/lib/" ;;
    esac
done
cp tests/gpu/run.sh tests/gpu/islands.sh tests/gpu/two_islands.sh tests/gpu/python.sh tests/gpu/torch_model.py tests/demo/shakespeare.txt "$kit"
# The Python package and its tests lie in it as they do in the tree.
mkdir -p "$kit/tree/tests/demo" "$kit/tree/worker/libdiloco/python" "$kit/tree/docs"
cp -R tests/python "$kit/tree/tests/"
cp -R docs/examples "$kit/tree/docs/"
cp -R worker/libdiloco/python/diloco "$kit/tree/worker/libdiloco/python/"
cp tests/demo/shakespeare.txt "$kit/tree/tests/demo/"
cp README.md "$kit/tree/"
find "$kit/tree" -name __pycache__ -type d -prune -exec rm -rf {} +
conf/licence.sh "$kit"
git describe --always --dirty >"$kit/commit" 2>/dev/null || echo unknown >"$kit/commit"
# The newest version of glibc's interfaces that anything here asks for.
find "$kit/bin" "$kit/lib" -type f -exec objdump -T {} + 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -t. -k2,2n | tail -n 1 |
    sed 's/GLIBC_//' >"$kit/glibc"
[ -s "$kit/glibc" ]
cat >"$kit/README.txt" <<END
The GPU tests and benchmarks of diloco, built from commit $(cat "$kit/commit"), for a machine with an NVIDIA driver for
CUDA 13 and glibc $(cat "$kit/glibc") or newer. Nothing is installed, and no setting of the GPU is changed.

    ./run.sh check [FOLDER]    kernels, whole models, ranks, islands, Python, sanitizers: at most 8 minutes
    ./run.sh bench [FOLDER]    speeds, to gpu-bench.json; beside PyTorch, where python3 has it: at most 8 minutes

Logs and results go to FOLDER (default: results, here); results.tgz in it has all of them, also where a signal ended
run.sh before its time. DILOCO_GPU=1 takes the second GPU, DILOCO_GPU_SECONDS=240 half
the time: what there is no time for then is listed as not run. Exit status: 0 all that ran is well, 1 something failed, 77
there is no GPU. libcublasLt.so.13 is the machine's: of the CUDA toolkit, of pip's nvidia-cublas,
or wherever LD_LIBRARY_PATH says; so are libnccl.so.2 and libcudnn.so.9, without which their parts are skipped. Of several
cuDNNs the newest is taken, of the system's as well. Libraries in lib/ are those of the distribution that this was built on.
END
mb=$(du -sk "$kit" | awk '{ printf "%.1f", $1 / 1024 }')
echo "$kit: $mb MB (at most $most_mb)"
[ "$(du -sk "$kit" | cut -f1)" -le $((most_mb * 1024)) ] || { echo "the kit is too large"; exit 1; }
# One file to send to a machine, with the folder in it.
tar -cf - -C "$(dirname "$kit")" --owner=0 --group=0 "$(basename "$kit")" | gzip -9 >"$kit.tgz"
mb=$(du -k "$kit.tgz" | awk '{ printf "%.1f", $1 / 1024 }')
echo "$kit.tgz: $mb MB (at most $most_packed_mb)"
[ "$(du -k "$kit.tgz" | cut -f1)" -le $((most_packed_mb * 1024)) ] || { echo "the archive is too large"; exit 1; }

#!/bin/sh
# Three islands with a network and a folder of their own each: one is cut off and killed, the run goes on, it comes back.
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
out=$BUILD/test-data/outlive
"$BUILD/tests/outlive/outlive" --programs "$BUILD" --data tests/demo/shakespeare.txt --namespaces --brief --out "$out" || exit
grep -q '"anchors_identical": true' "$out/summary.json"

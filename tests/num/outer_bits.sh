#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# outer_opt/ gives the same bits with gcc and clang, -O0 and -O3, SSE2, AVX2 and AVX-512, 1 and 2 threads.
set -eu
dir=$BUILD/test-data/outer-bits
rm -rf "$dir"
mkdir -p "$dir"
libraries=$(pkg-config --cflags --libs libsodium libzstd)
sources="tests/num/bits/outer_bits.c outer_opt/vec.c outer_opt/vhash.c outer_opt/codec.c outer_opt/codec_block.c \
outer_opt/codec_frame.c outer_opt/codec_lowrank.c outer_opt/codec_topk.c outer_opt/codec_uniform.c common/isa.c \
common/digest.c common/env.c common/bytes.c common/err.c common/mem.c"

isas=base
[ "$(uname -m)" = x86_64 ] && isas="base avx2 avx512"
flags_of() {
    case $1 in
    base) ;;
    avx2) echo -mavx2 ;;
    avx512) echo -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512 ;;
    esac
}

built=0
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null 2>&1; then
        echo "skip: $compiler is not installed; its bits were not compared"
        continue
    fi
    for level in -O0 -O3; do
        objects=
        common="-std=gnu11 -D_GNU_SOURCE -I. $level -ffp-contract=off -pthread"
        for isa in $isas; do
            for part in impl coarse pack; do
                $compiler $common $(flags_of $isa) -DISA=$isa -c outer_opt/vec_$part.c -o "$dir/$part.$isa.o"
                objects="$objects $dir/$part.$isa.o"
            done
            [ $isa = base ] && continue
            $compiler $common $(flags_of $isa) -DISA=$isa -c common/blake2b_lanes.c -o "$dir/lanes.$isa.o"
            objects="$objects $dir/lanes.$isa.o"
        done
        $compiler $common $sources $objects $libraries -lm -o "$dir/bits"
        for threads in 1 2; do
            "$dir/bits" $threads | sed "s/\$/ $compiler $level $threads thread(s)/" >>"$dir/hashes"
        done
        built=$((built + 1))
    done
done

cat "$dir/hashes"
[ $built -gt 0 ] || { echo "no compiler"; exit 1; }
distinct=$(cut -d' ' -f1 "$dir/hashes" | sort -u | wc -l)
echo "$(wc -l <"$dir/hashes") combinations, $distinct hash(es)"
[ "$distinct" -eq 1 ]

#!/bin/sh
# make fuzz: searches with libFuzzer, FUZZ_SECONDS (default 30) per target. Needs clang. New inputs that reach new code
# are kept in the build folder for the next time; one that breaks something is left there too, and named: it belongs
# into tests/fuzz/corpus, which every `make check` replays.
set -eu
command -v clang >/dev/null 2>&1 || { echo "make fuzz needs clang: apt-get install clang"; exit 1; }
make --no-print-directory PREREQS_PRESENT=1 CC=clang SAN=address,undefined all tests/fuzz-archives
build=build/clang-address-undefined
flags="-std=gnu11 -D_GNU_SOURCE -I. -I$build/gen -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DLIBFUZZER"
libraries=$(pkg-config --libs libzmq libsodium libzstd libprotobuf-c inih jansson libsystemd)
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c | sed 's/^fuzz_//')
    clang $flags "$source" -Wl,--start-group $build/daemon.a $build/net.a $build/outer_opt.a $build/common.a -Wl,--end-group \
        $libraries -lm -o "$build/fuzzer_$name"
    mkdir -p "$build/corpus/$name"
    echo "== $name"
    "$build/fuzzer_$name" -max_total_time="${FUZZ_SECONDS:-30}" -artifact_prefix="$build/$name-" -print_final_stats=0 \
        -verbosity=0 -max_len=16384 "$build/corpus/$name" "tests/fuzz/corpus/$name"
done

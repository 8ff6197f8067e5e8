# SPDX-License-Identifier: Apache-2.0
# What run.sh and guided.sh share; read with `.` from the root of the tree.
#
# Guidance is clang's libFuzzer, fed by counters and comparisons in our own archives: fuzzer-no-link puts them there.
# Without it only the few lines of a target would be seen, and inputs changed at random.

fuzz_san=address,undefined,float-cast-overflow,fuzzer-no-link
# How near a comparison was counts as news, too: a number of 8 bytes is found bit by bit.
fuzz_flags='-use_value_profile=1 -timeout=20'
fuzz_build=build/clang-$(echo "$fuzz_san" | tr , -)

# Why there is no libFuzzer here; nothing where there is one.
libfuzzer_missing() {
    command -v clang >/dev/null 2>&1 || { echo "clang is not installed (apt-get install clang libclang-rt-dev)"; return; }
    tried=$(mktemp)
    printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\nint LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return !d && n; }\n' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o "$tried" 2>/dev/null ||
        echo "clang has no libFuzzer (apt-get install libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev)"
    rm -f "$tried"
}

fuzz_make() { # targets of the Makefile, in the folder of the guided build
    make --no-print-directory -j"${FUZZ_JOBS:-$(nproc)}" PREREQS_PRESENT=1 CC=clang SAN="$fuzz_san" "$@"
}

# One target with libFuzzer's own main().
fuzz_link() { # source, program, objects and libraries
    source=$1 program=$2
    shift 2
    clang -std=gnu11 -D_GNU_SOURCE -I. -I"$fuzz_build/gen" -O1 -g -pthread -Wall -Werror -DLIBFUZZER \
        -fsanitize=fuzzer,address,undefined,float-cast-overflow -fno-sanitize-recover=all "$source" "$@" -o "$program"
}

# What a target may use, and what these need.
fuzz_libraries() {
    printf -- '%s -Wl,--start-group' "$fuzz_build/tests/lib/testlib.o"
    for archive in tests/lib daemon net outer_opt common; do printf ' %s' "$fuzz_build/$archive.a"; done
    printf -- ' -Wl,--end-group'
    echo " $(pkg-config --libs libzmq libsodium libzstd libprotobuf-c inih jansson libsystemd cmocka) -lm"
}

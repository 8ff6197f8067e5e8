#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every operation of the CUDA table has a case in tests/kern, which runs on the CPU, the emulated GPU and a real one; and
# where CUDA's tools are, its machine code is what it should be: nothing in local memory, tensor cores in attention,
# loads of 16 bytes.
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
bad=0
complain() { echo "$1"; bad=1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# ---- cases ----
header=kernels/cuda/cuda.h
sed -n '/^#define CUDA_OPERATIONS/,/[^\\]$/p' $header | grep -o '\.[a-z_]* = cuda_[a-z_]*' |
    sed 's/^\.//; s/ = cuda_/ /' >"$work/operations"
[ "$(wc -l <"$work/operations")" -ge 30 ] || complain "only $(wc -l <"$work/operations") operations were found in $header"
cases=$(tests/files.sh 'tests/kern/*.c')
sources=$(tests/files.sh 'kernels/cuda/*.cu')
[ -n "$cases" ] && [ -n "$sources" ] || { echo "no cases or no kernels were found"; exit 1; }
while read -r operation launcher; do
    [ "$operation" = "$launcher" ] || complain "$header: .$operation is cuda_$launcher"
    grep -qE "kern->$operation\(" $cases || complain "$operation has no case in tests/kern"
done <"$work/operations"
# Of attention the table has the choice between ours and another library's, which cuda_attention.c makes.
chooser=kernels/cuda/cuda_attention.c
grep -o '\.[a-z_]* = cuda_chosen_[a-z]*' kernels/cuda/cuda_table.c | sed 's/^\.//; s/ = .*//' >"$work/chosen"
[ "$(wc -l <"$work/chosen")" -ge 4 ] || complain "only $(wc -l <"$work/chosen") operations that are chosen were found in cuda_table.c"
while read -r operation; do
    [ "$operation" = attention_by ] || grep -qE "kern->$operation\(" $cases || complain "$operation has no case in tests/kern"
done <"$work/chosen"
# A function that is there for the table, and not in it, would be called by nobody.
grep -ohE '^(extern "C" )?[a-z_0-9]+( [a-z_0-9]+)? \*?cuda_[a-z_]+\(' $sources | grep -v '^static' |
    sed 's/.*cuda_//; s/($//' | sort -u >"$work/launchers"
[ "$(wc -l <"$work/launchers")" -ge 20 ] || complain "only $(wc -l <"$work/launchers") launchers were found in kernels/cuda"
while read -r launcher; do
    grep -qx "$launcher $launcher" "$work/operations" && continue
    grep -q "cuda_$launcher(" $chooser && continue
    case $launcher in
    *_scratch) grep -q "cuda_$launcher" kernels/cuda/cuda_reserve.c || complain "reserve() makes no room for cuda_$launcher()" ;;
    *) complain "cuda_$launcher() is not in CUDA_OPERATIONS of $header, nor called by $chooser" ;;
    esac
done <"$work/launchers"
[ $bad = 0 ] && echo "$(cat "$work/operations" "$work/chosen" | grep -cv attention_by) operations have cases"

# ---- machine code ----
library=$BUILD/libdiloco-cuda.so
skip() { echo "skip: $1"; exit $bad; }
[ -f "$library" ] || skip "$library is not built, so its machine code was not looked at"
beside=$(dirname "$(readlink -f "$(command -v nvcc)" 2>/dev/null)" 2>/dev/null)
[ -z "$beside" ] || PATH=$PATH:$beside
command -v cuobjdump >/dev/null 2>&1 || skip "cuobjdump of the CUDA toolkit is not here, so machine code was not looked at"

cuobjdump -res-usage "$library" >"$work/usage" 2>&1 || complain "cuobjdump -res-usage fails: $(tail -n 1 "$work/usage")"
# A line with a function, then one with what it takes; of PTX there is only the first.
awk '/^ *Function / { name = $2; next }
    /^ *REG:/ { kernels++; if ($0 !~ / STACK:0 / || $0 !~ / LOCAL:0 /) { print name " " $0; bad = 1 } }
    END { print kernels + 0 " kernels" > "/dev/stderr"; exit bad }' "$work/usage" >"$work/spilled" 2>"$work/count" ||
    complain "kernels that keep values in local memory:
$(cat "$work/spilled")"
[ "$(sed 's/ .*//' "$work/count")" -ge 60 ] || complain "only $(cat "$work/count") were found in $library"

cuobjdump -arch sm_80 -sass "$library" >"$work/sass" 2>&1 && grep -q 'Function :' "$work/sass" ||
    skip "cuobjdump shows no machine code here (nvdisasm is missing?): $(tail -n 1 "$work/sass")"
# kernels whose name holds this | instruction that each of them has
while read -r part instruction; do
    awk -v part="$part" -v instruction="$instruction" '
        function end() { if (name != "" && !has) { print name " has no " instruction; bad = 1 } }
        /Function :/ { end(); name = index($3, part) ? $3 : ""; has = 0; if (name != "") found++; next }
        name != "" && index($0, instruction) { has = 1 }
        END { end(); if (!found) { print "no kernel is called " part; bad = 1 } exit bad }' "$work/sass" || bad=1
done <<'END'
attention_fwd_kernel HMMA
attention_fwd_kernel LDSM
attention_dq_kernel HMMA
attention_dq_kernel LDSM
attention_dkv_kernel HMMA
attention_dkv_kernel LDSM
rmsnorm_forward LDG.E.128
rmsnorm_backward LDG.E.128
adamw_step LDG.E.128
END
[ $bad = 0 ] && echo "$(cat "$work/count"), none with local memory"
exit $bad

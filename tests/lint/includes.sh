#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes of ours are written from the root and exist, file names are unique, CUDA, BLAS and NCCL stay in kernels/ and
# worker/, and outer_opt/ and net/ know no sockets and no floats. Where includes may point to is in circles.sh.
set -u
bad=0
complain() { echo "$1"; bad=1; }

files=$(tests/files.sh '*.c' '*.h' '*.cu' '*.cuh' | grep -E '^(daemon|worker|net|outer_opt|kernels|common|tests)/')
[ -n "$files" ] || { echo "no source files found"; exit 1; }

for file in $files; do
    room=${file%%/*}
    for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file"); do
        case $include in
        */*) ;;
        *) complain "$file: \"$include\" is not written from the root"; continue ;;
        esac
        [ -f "$include" ] || case $include in *.pb-c.h) ;; *) complain "$file: $include does not exist" ;; esac
    done
    case $room in
    kernels | worker | tests) ;;
    *) grep -nE '#[[:space:]]*include[[:space:]]*<(cuda|cublas|nccl|dnnl|omp)' "$file" | sed "s,^,$file: ," | grep . && bad=1 ;;
    esac
    case $room in
    outer_opt) grep -nE '#[[:space:]]*include[[:space:]]*<(zmq|sys/socket|math)' "$file" | sed "s,^,$file: ," | grep . && bad=1 ;;
    net) grep -nE '\b(float|double)\b' "$file" | grep -vE '^[0-9]+:[[:space:]]*(\*|/\*|//)' | sed "s,^,$file: net/ never sees a float: ," | grep . && bad=1 ;;
    esac
done

twice=$(printf '%s\n' "$files" | sed 's,.*/,,' | sort | uniq -d)
[ -z "$twice" ] || complain "file names that are not unique: $twice"
exit $bad

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run on tokens is sampled as text where there is a tokenizer.json, asked for or beside the parameters, and as numbers
# where there is none, or one that cannot be read.
set -eu
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
dir=$BUILD/test-data/sample-$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
worker=$BUILD/diloco-worker
cat >"$dir/run.ini" <<INI
[run]
name = sample
steps = 1
[model]
vocab = 410
width = 16
layers = 1
heads = 2
context = 16
[data]
format = uint16
held_out = 0
[train]
batch = 1
INI
i=0
while [ $i -lt 200 ]; do
    printf '\101\0\102\0\103\0\104\0\105\0\106\0\107\0\110\0'
    i=$((i + 1))
done >"$dir/corpus.bin"
"$worker" train --run "$dir/run.ini" --data "$dir/corpus.bin" --threads 1 --out "$dir" 2>"$dir/log"
sample() { "$worker" sample --params "$dir/worker-000000001.safetensors" --threads 1 --tokens 20 "$@"; }
refused() { # what it says, options
    part=$1 status=0
    shift
    sample "$@" >"$dir/said" 2>"$dir/log" || status=$?
    [ $status = 2 ] && grep -qF -- "$part" "$dir/log" || { cat "$dir/said" "$dir/log"; echo "not refused by: $part"; exit 1; }
}

numbers() { grep -Eqx '([0-9]+ ){22}' "$1"; }
sample --prompt "65 66" >"$dir/said"
numbers "$dir/said"
refused '"wherefore" is not a token' --prompt "wherefore"

# Beside the parameters; the model's vocabulary may be larger.
cp tests/vectors/tokenizer-llama3.json "$dir/tokenizer.json"
sample --prompt "O Romeo, forsooth!" >"$dir/said" 2>"$dir/log"
cat "$dir/said"
grep -aq '^O Romeo, forsooth!' "$dir/said"
iconv -f UTF-8 -t UTF-8 "$dir/said" >/dev/null
grep -q "the tokenizer has 403 tokens, the model's vocabulary 410" "$dir/log"
sample --prompt "65 66" --tokenizer none >"$dir/said"
numbers "$dir/said"

# Asked for.
mv "$dir/tokenizer.json" "$dir/other.json"
sample --prompt "O Romeo" --tokenizer "$dir/other.json" >"$dir/said" 2>/dev/null
grep -aq '^O Romeo' "$dir/said"
sample --prompt "" --tokenizer "$dir/other.json" >"$dir/said" 2>/dev/null
refused 'has tokens up to 520, and the model a vocabulary of 410: it is of another model; --tokenizer none gives numbers' \
    --tokenizer tests/vectors/tokenizer-sentencepiece.json
refused 'cannot open' --tokenizer "$dir/missing.json"
refused '--prompt: the text is not UTF-8' --tokenizer "$dir/other.json" --prompt "$(printf '\377')"

# One that lies there and cannot be read is no reason not to sample; one that can only print takes numbers.
echo '{"model":{"type":"Unigram"}}' >"$dir/tokenizer.json"
sample --prompt "65 66" >"$dir/said" 2>"$dir/log"
numbers "$dir/said"
grep -q 'model is Unigram; BPE can be read; tokens are numbers here' "$dir/log"
sed 's/"normalizer":{"type":"NFC"}/"normalizer":{"type":"NFKC"}/' "$dir/other.json" >"$dir/tokenizer.json"
refused 'normalizer NFKC' --prompt "wherefore"
sample --prompt "65 66 400" >"$dir/said" 2>/dev/null
grep -aq 'forsooth' "$dir/said"

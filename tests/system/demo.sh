#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make demo`, cut down to a few steps: it learns from the text of this tree and from nothing of this machine, says
# what it does until its end, and README tells of the run that conf/demo.ini describes.
case ${SAN:-} in *thread*) echo "the trainer uses OpenMP, whose runtime the thread sanitizer cannot see into"; exit 77 ;; esac
set -eu
root=$PWD
programs=$root/$BUILD
dir=$programs/test-data/demo-$$
trap 'rm -rf "$dir"' EXIT
fail() { echo "$1"; exit 1; }

text=tests/demo/shakespeare.txt
[ "$(sha256sum <$text)" = '86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed  -' ] ||
    fail "$text is not the text of README's figures"
[ "$(wc -c <$text)" -lt 2000000 ] || fail "$text: over 2 MB"
tests/files.sh | grep -qx $text || fail "$text does not belong to the tree"
grep -q 'public domain' tests/demo/README.md || fail "tests/demo/README.md does not say whose the text is"

mkdir -p "$dir/conf" "$dir/tests/demo"
sed 's/^steps = .*/steps = 20/; s/^interval = .*/interval = 10/; s/^warmup = .*/warmup = 5/' conf/demo.ini >"$dir/conf/demo.ini"
ln -s "$root/$text" "$dir/$text"
cd "$dir"
"$programs/tests/demo/demo" --programs "$programs" >said 2>&1 ||
    { tail -n 20 said; tail -n 8 build/demo/*.log; exit 1; } # which go with the folder
cmp build/demo/corpus "$root/$text"

# What it says, in this order.
sed 's/^ *[0-9]* s *//' said >lines
while IFS= read -r line; do
    at=$(grep -n -m1 -- "$line" lines | cut -d: -f1)
    [ -n "$at" ] || { cat said; fail "it does not say in its turn: $line"; }
    sed -i "1,${at}d" lines
done <<END
^step [0-9]*/20  loss oslo [0-9.]* lima [0-9.]*
^ending both daemons
^for comparison, data-parallel on as many tokens
^measuring the held-out loss before training$
^measuring the held-out loss of the trained model$
^measuring the held-out loss of data-parallel training$
^letting the model write$
^drawing the picture$
^anchors  *identical on both islands
^held-out loss
^data-parallel       [0-9.]* held out
^took .* s of training, .* s in all$
^ROMEO:$
^picture
END
tokens=$(sed -n 's/.*"tokens":\([0-9]*\).*/\1/p' build/demo/data-parallel/train.jsonl | tail -n 1)
[ "$tokens" = "$(sed -n 's/^ *"tokens": \([0-9]*\),/\1/p' build/demo/summary.json)" ] ||
    fail "data-parallel training had $tokens tokens, the islands together others"
# The held-out loss, as it goes and in the end, of both, in colours of their own.
value() { sed -n "s/^ *\"$1\": \([0-9.]*\),\{0,1\}$/\1/p" build/demo/summary.json; }
for trainer in oslo/state/worker data-parallel; do
    [ "$(grep -c val_loss build/demo/$trainer/train.jsonl)" -ge 5 ] || fail "$trainer does not measure the held-out loss as it goes"
done
for name in 'islands, held out' 'data-parallel, held out' "held out: islands $(value val_loss_anchor | awk '{ printf "%.3f", $1 }'), data-parallel $(value val_loss_data_parallel | awk '{ printf "%.3f", $1 }')"; do
    grep -qF "$name" build/demo/loss.svg || fail "the picture does not show: $name"
done
[ "$(grep -o "<circle .*fill='[^']*'" build/demo/loss.svg | sed "s/.*fill='//" | sort -u | wc -l)" -eq 2 ] || fail "the held-out points are of one colour"
# Lines for people fit their terminals, less those with a path of this machine.
sed '/^What the model writes/,$d' said | grep -vF "$programs" | grep -E '^.{81,}' && fail "lines of more than 80 columns"
[ "$(wc -c <build/demo/sample.txt)" -gt 500 ] || fail "the sample is no sample"

# What README and docs/RESULTS.md say.
steps=$(sed -n 's/^steps = //p' "$root/conf/demo.ini")
interval=$(sed -n 's/^interval = //p' "$root/conf/demo.ini")
millions=$(value params | awk '{ printf "%.1f", $1 / 1e6 }')
start=$(value val_loss_start | awk '{ printf "%.2f", $1 }')
cat "$root/README.md" "$root/docs/RESULTS.md" | tr '\n' ' ' >readme
for words in "$millions million parameters on two islands" "over $steps steps" "every $interval steps" \
    "loss fell from $start to"; do
    grep -qF "$words" readme || fail "neither README.md nor docs/RESULTS.md says: $words"
done
grep -qF "$millions million parameters, $(value fragments) fragments, each exchanged every $interval steps" \
    "$root/docs/demo-loss.svg" || fail "docs/demo-loss.svg is of another run than conf/demo.ini"

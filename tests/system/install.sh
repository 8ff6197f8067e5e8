#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install` puts everything where a packager expects it, and a trainer of one's own builds against it.
set -eu
make_as_packager() { make -s PREREQS_PRESENT=1 CC="${CC:-gcc}" SAN="${SAN:-}" "$1" DESTDIR="$root" PREFIX=/usr >/dev/null; }
root=$PWD/$BUILD/test-data/install-$$
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"
unset MAKEFLAGS MFLAGS MAKELEVEL
tree=$PWD
# What somebody else has put there, and make uninstall leaves.
mkdir -p "$root/etc/diloco" && echo mine >"$root/etc/diloco/dilocod.conf"
make_as_packager install

for file in usr/bin/dilocod usr/bin/dilococtl usr/bin/diloco-worker usr/bin/diloco-gateway usr/include/diloco.h usr/lib/libdiloco.a \
    usr/lib/libdiloco.so.0 usr/lib/libdiloco.so usr/lib/pkgconfig/diloco.pc usr/share/man/man8/dilocod.8 usr/share/man/man8/diloco-gateway.8 usr/share/man/man3/libdiloco.3 usr/share/man/man5/dilocod.conf.5 usr/share/man/man5/run.ini.5 \
    usr/share/man/man1/dilococtl.1 usr/share/man/man1/diloco-worker.1 usr/lib/systemd/system/dilocod.service \
    usr/share/diloco/dilocod-gpu.conf \
    usr/share/bash-completion/completions/dilococtl usr/share/zsh/vendor-completions/_dilococtl \
    usr/share/fish/vendor_completions.d/dilococtl.fish usr/share/bash-completion/completions/diloco-worker \
    etc/diloco/dilocod.conf.sample etc/diloco/run.ini.sample etc/diloco/thin.ini.sample \
    usr/share/doc/diloco/LICENSE usr/share/doc/diloco/CHANGELOG.md \
    usr/share/doc/diloco/PROTOCOL.md usr/share/doc/diloco/tutorials/two-sites.md; do
    [ -e "$root/$file" ] || { echo "not installed: $file"; exit 1; }
done
[ "$(stat -c %a "$root/etc/diloco/key")" = 700 ] || { echo "others may look into the folder of the key"; exit 1; }
# Installed again, it stays its user's.
chmod 710 "$root/etc/diloco/key" && make_as_packager install
[ "$(stat -c %a "$root/etc/diloco/key")" = 710 ] || { echo "make install changes a folder of the key that is there"; exit 1; }
grep -q 'TERMS AND CONDITIONS FOR USE' "$root/usr/share/doc/diloco/Apache-2.0.txt"
version=$("$root/usr/bin/dilococtl" --version | sed 's/.* //')
for said in usr/lib/pkgconfig/diloco.pc usr/share/man/man1/dilococtl.1 usr/share/man/man5/run.ini.5; do
    grep -q "[ \"]\(diloco \)\{0,1\}$version" "$root/$said" || { echo "$said is of another version than $version"; exit 1; }
done
# The CUDA backend, where it was built, in the first folder that the program looks in.
if [ -f "$BUILD/libdiloco-cuda.so" ]; then
    cmp "$BUILD/libdiloco-cuda.so" "$root/usr/lib/diloco/libdiloco-cuda.so" || { echo "the CUDA backend is not installed"; exit 1; }
fi
grep -q '^ExecStart=/usr/bin/dilocod' "$root/usr/lib/systemd/system/dilocod.service"
grep -q '/usr/share/diloco/dilocod-gpu.conf' "$root/usr/share/diloco/dilocod-gpu.conf"
if grep -rn '/usr/local' "$root/usr/lib/systemd" "$root/usr/lib/pkgconfig" "$root/usr/share/diloco"; then
    echo "a path of another prefix was installed"
    exit 1
fi
"$root/usr/bin/dilococtl" --version
for sample in run.ini thin.ini; do
    "$root/usr/bin/diloco-worker" spec --run "$root/etc/diloco/$sample.sample" >/dev/null
done

# One command makes an island, with what was installed.
short=$(mktemp -d)
trap 'rm -rf "$root" "$short"' EXIT
printf '[run]\nname = x\nsteps = 1000000\n[model]\nwidth = 16\nlayers = 2\nheads = 2\ncontext = 16\n' >"$short/run.ini"
"$root/usr/bin/dilococtl" init --home "$short/paris" --name paris --data README.md --run "$short/run.ini" --listen ''
"$root/usr/bin/dilococtl" --home "$short/paris" status | grep 'paris, 1 of 1 islands'
"$root/usr/bin/dilococtl" --home "$short/paris" stop

# Uninstalled, nothing stays but what was there before, and folders that others use, too.
nothing_stays() {
    make_as_packager uninstall
    find "$root" ! -type d | sed "s,^$root/,," >"$short/stays"
    echo etc/diloco/dilocod.conf | diff - "$short/stays" || { echo "make uninstall leaves or takes what it should not"; exit 1; }
    [ ! -e "$root/etc/diloco/key" ] || { echo "make uninstall leaves the empty folder of the key"; exit 1; }
    ! find "$root" -type d -name diloco | grep -v '/etc/diloco$' || { echo "make uninstall leaves an empty folder"; exit 1; }
}

if [ -n "${SAN:-}" ]; then
    nothing_stays
    echo "skip: a program outside is not built with sanitizers"
    exit 0
fi
export PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
example=$root/usr/share/doc/diloco/example-trainer.c
flags="-Wall -Wextra -Werror"
"${CC:-gcc}" $flags "$example" -o "$root/shared" $(pkg-config --cflags --libs diloco)
"${CC:-gcc}" $flags "$example" -o "$root/static" $(pkg-config --cflags diloco) "$root/usr/lib/libdiloco.a" -lm

# The example takes part in a run of one island, from the first step to the last.
cd "$root"
usr/bin/dilococtl keygen key >/dev/null
printf '[run]\nname = example\nsteps = 100\n[sync]\ninterval = 20\npattern = balanced\n' >run.ini
printf '[island]\nname = alone\nrun = run.ini\nkey = key\nstate = state\nsockets = s\n[net]\nlisten =\n[worker]\nprogram =\n' >conf
for way in shared static; do
    rm -rf state
    usr/bin/dilocod --config conf >log 2>&1 &
    daemon=$!
    for i in $(seq 100); do [ -S s/worker.sock ] && break; sleep 0.1; done
    status=0
    DILOCO_SOCKET=s/worker.sock LD_LIBRARY_PATH=usr/lib timeout 60 ./$way || status=$?
    usr/bin/dilococtl status --socket s/control.sock | grep -E 'finished|degraded'
    kill $daemon
    wait $daemon || status=$?
    [ $status = 0 ] && [ -s state/anchor.safetensors ] || { cat log; exit 1; }
done
# Without a daemon it says so.
! DILOCO_SOCKET=s/worker.sock ./static 2>err || exit 1
grep -q 'start dilocod' err
cd "$tree"
rm -rf "$root/key" "$root/run.ini" "$root/conf" "$root/state" "$root/s" "$root/log" "$root/err" "$root/shared" "$root/static"
nothing_stays

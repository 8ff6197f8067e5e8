#!/bin/sh
# `make install` puts everything where a packager expects it, and a trainer of one's own builds against it.
set -eu
root=$PWD/$BUILD/test-data/install-$$
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s PREREQS_PRESENT=1 CC="${CC:-gcc}" SAN="${SAN:-}" install DESTDIR="$root" PREFIX=/usr >/dev/null

for file in usr/bin/dilocod usr/bin/dilococtl usr/bin/diloco-worker usr/include/diloco.h usr/lib/libdiloco.a \
    usr/lib/libdiloco.so.0 usr/lib/libdiloco.so usr/lib/pkgconfig/diloco.pc usr/share/man/man8/dilocod.8 \
    usr/share/man/man1/dilococtl.1 usr/share/man/man1/diloco-worker.1 usr/lib/systemd/system/dilocod.service \
    etc/diloco/dilocod.conf.sample etc/diloco/run.ini.sample usr/share/doc/diloco/PROTOCOL.md; do
    [ -e "$root/$file" ] || { echo "not installed: $file"; exit 1; }
done
grep -q '^ExecStart=/usr/bin/dilocod' "$root/usr/lib/systemd/system/dilocod.service"
if grep -rn '/usr/local' "$root/usr/lib/systemd" "$root/usr/lib/pkgconfig"; then
    echo "a path of another prefix was installed"
    exit 1
fi
"$root/usr/bin/dilococtl" --version
"$root/usr/bin/diloco-worker" spec --run "$root/etc/diloco/run.ini.sample" >/dev/null

if [ -n "${SAN:-}" ]; then
    echo "skip: a program outside is not built with sanitizers"
    exit 0
fi
cat >"$root/trainer.c" <<'C'
#include <diloco.h>
#include <stdio.h>
int main(void)
{
    struct diloco *d;
    struct diloco_options options = {.socket_path = "/no/such/socket"};
    int result = diloco_attach(&options, &d);
    puts(diloco_error(NULL));
    return result == DILOCO_UNREACHABLE ? 0 : 1;
}
C
export PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
"${CC:-gcc}" "$root/trainer.c" -o "$root/trainer" $(pkg-config --cflags --libs diloco)
LD_LIBRARY_PATH="$root/usr/lib" "$root/trainer"
"${CC:-gcc}" "$root/trainer.c" -o "$root/static" $(pkg-config --cflags diloco) "$root/usr/lib/libdiloco.a" -lsodium -ljansson \
    -linih -lm
"$root/static"

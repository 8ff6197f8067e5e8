# SPDX-License-Identifier: Apache-2.0
# Islands whose trainer is docs/example-ranks.c, on machines of tests/lib/machines.sh. For shell scripts, at the root of
# the tree.

skip() { echo "skip: $1"; exit 77; }
fail() {
    echo "FAIL: $1"
    for island in $islands; do echo "--- $island"; tail -n 30 "$work/$island/dilocod.log" 2>/dev/null; done
    [ ! -f "${log:-}" ] || { echo '--- the job' && tail -n 60 "$log"; }
    exit 1
}
await() { # seconds, what, command...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "not within its time: $what"
        sleep 0.2
    done
}
port() { python3 -c 'import sys; sys.path.insert(0, "tests/python"); import islands; print(islands.free_port())'; }

# Machines, a folder $work, and the trainer in it; all of it is taken away at the end. Skips where that cannot be.
ranks_begin() { # machines, islands
    : "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
    for tool in mpicc mpirun; do
        command -v $tool >/dev/null 2>&1 || skip "there is no $tool; apt-get install libopenmpi-dev openmpi-bin"
    done
    machines_possible || skip "$reason"
    case ${SAN:-} in *thread*) skip "MPI's library is not built for the thread sanitizer" ;; esac
    islands=$2 ctl=$PWD/$BUILD/dilococtl pid_files=
    work=$(mktemp -d /tmp/diloco-ranks-XXXXXX) # sockets have short paths
    trap ranks_end EXIT
    local libraries
    libraries=$(pkg-config --libs libsodium jansson inih)
    mpicc docs/example-ranks.c -o "$work/example-ranks" -O2 -Wall -Wextra -Werror -Iworker/libdiloco \
        "$BUILD/libdiloco.a" $libraries -lm ${SAN:+-fsanitize=$SAN} || fail "docs/example-ranks.c does not compile"
    machines_begin "$1" "$work" || fail "machines cannot be made"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=tcp,self
    export OMPI_MCA_btl_tcp_if_include=$machines_net OMPI_MCA_oob_tcp_if_include=$machines_net
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
}

ranks_end_with() { pid_files="$pid_files $1"; } # a file with the number of a process

ranks_end() {
    for island in $islands; do "$ctl" stop --home "$work/$island" >/dev/null 2>&1; done
    machines_end
    for file in $pid_files; do kill "$(cat "$file")" 2>/dev/null; done
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}

spec() { # steps
    cat >"$work/run.ini" <<I
[run]
name = ranks
steps = $1
[sync]
interval = 50
late = merge
pace = lockstep
I
}

# island, program. What MPI leaves at its end is not ours.
program() {
    sed -i "s|^program = .*|program = ${SAN:+env ASAN_OPTIONS=detect_leaks=0 }$2|" "$work/$1/dilocod.conf" ||
        fail "$1 has no program"
}

found() { # island, program, HOST:PORT
    "$ctl" init --home "$work/$1" --name "$1" --run "$work/run.ini" --listen "$3" --address "$3" --data README.md \
        --no-start >/dev/null || fail "$1 cannot be made"
    program "$1" "$2"
    "$ctl" start --home "$work/$1" >/dev/null || fail "$1 does not start"
    founder=$1
}

join() { # island, program, HOST:PORT to listen on, or ''; it is not started
    local token
    token=$("$ctl" invite --home "$work/$founder" | grep -o 'dlc1\.[^ ]*' | head -n 1)
    "$ctl" join "$token" --home "$work/$1" --name "$1" --listen "$3" --data README.md --no-start >/dev/null ||
        fail "$1 cannot join"
    program "$1" "$2"
}

ended() { grep -q 'the trainer (pid [0-9]*) ended with status 0' "$work/$1/dilocod.log"; }
anchors() { "$ctl" status --home "$work/$1" --json | sed -n 's/.*"anchors": *"\([0-9a-f]*\)".*/\1/p'; }

# What each of four ranks says that its first number is in the end is what the island's anchor holds.
assert_ranks_hold_the_anchor() { # island, file of what they said
    python3 - "$work/$1/state/anchor.safetensors" "$2" <<'P' || { cat "$2"; fail "ranks hold other values than the anchor"; }
import array, json, re, sys
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
begin, end = json.loads(data[8 : 8 + size])["w"]["data_offsets"]
values = array.array("f", data[8 + size + begin : 8 + size + end])
said = dict(re.findall(r"done: w\[(\d+)\] = ([-\d.e]+),", open(sys.argv[2]).read()))
assert sorted(map(int, said)) == [0, 500, 1000, 1500], said
assert all(values[int(at)] == array.array("f", [float(text)])[0] for at, text in said.items()), said
P
}

# SPDX-License-Identifier: Apache-2.0
# Two islands on this machine, paris and oslo, with real daemons: what islands.sh and tests/system/ranks.sh have in
# common. Sourced, with BUILD, `text` (what they train on) and `patience_s` set.

place=$(mktemp -d "/tmp/diloco-two-XXXXXX") # sockets have short paths
ctl() { home=$place/$1; shift; "$BUILD/dilococtl" --home "$home" "$@"; }
end() {
    for name in paris oslo; do
        [ ! -d "$place/$name" ] || ctl $name stop >/dev/null 2>&1 || true
    done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 1' INT TERM
fail() {
    for name in paris oslo; do
        echo "--- the log of $name:"
        tail -n 25 "$place/$name/dilocod.log" 2>/dev/null || true
    done
    echo "$1"
    exit 1
}
# A command of dilococtl that has to succeed: what fails otherwise, island, words.
must() { what_fails=$1; shift; ctl "$@" >"$place/said" 2>&1 || { cat "$place/said"; fail "$what_fails"; }; }
# A value of the status, of the island's own or of its trainer's part.
value() { ctl "$1" status --json 2>/dev/null | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p" | head -n 1; }
look() { :; } # at each look of await(), which says what it waits for
await() { # what it is called, and a command that says yes
    what=$1; shift
    begin=$(date +%s)
    until "$@"; do
        look "$what"
        [ $(($(date +%s) - begin)) -le "$patience_s" ] || fail "$what: not within $patience_s s"
        sleep 0.3
    done
}
finished() { [ "$(value "$1" state)" = finished ] && [ -n "$(value "$1" saved)" ]; }
same() {
    a=$(value paris anchors) b=$(value oslo anchors)
    [ ${#a} -eq 64 ] && [ "$a" = "$b" ] && finished paris && finished oslo
}

# Founds the run of $place/run.ini at paris, which starts no trainer by itself.
make_paris() {
    must "paris cannot be made" paris init --name paris --data "$text" --run "$place/run.ini" --no-start
    port=$(sed -n 's/^listen = .*://p' "$place/paris/dilocod.conf")
    sed -i "s/^autostart = .*/autostart = no/; s/^listen = .*/listen = 127.0.0.1:$port/" "$place/paris/dilocod.conf"
}
# Oslo joins the run of paris before it has come far, so that both begin at nearly the same step.
in_the_run() { ctl paris peers --json | tr -d '\n' | tr '{' '\n' | grep '"name": "oslo"' | grep -q '"role": "owner"'; }
together() { # a command that changes the configuration of oslo
    must "paris does not start" paris start
    # Until its parameters are the run's, with which oslo begins, too.
    for pause_s in 0.1 0.2 0.5 1 2 4 8 16 32; do
        [ "$(value paris anchors | wc -c)" -ne 65 ] || break
        ctl paris resume --no-wait >"$place/said" 2>&1 || true
        sleep $pause_s
        must "paris does not pause" paris pause --now
    done
    ctl paris invite --json >"$place/token" || fail "paris invites nobody"
    must "oslo does not join" oslo join "$(sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' "$place/token")" --name oslo --data "$text" --listen '' --no-start
    sed -i "s/^autostart = .*/autostart = no/" "$place/oslo/dilocod.conf"
    "$@"
    must "oslo does not start" oslo start
    await "oslo is in the run" in_the_run
    for name in paris oslo; do
        must "$name does not begin" $name resume --no-wait
    done
}

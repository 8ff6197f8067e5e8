#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which test sees which fault: plants the faults of tests/mutants one by one in a copy of the tree, builds, and runs the
# tests that should fail. A test that has never been seen failing proves nothing.
#
#   tests/mutants.sh [NAME | FILE.patch]...      all of tests/mutants where none is named
#   tests/mutants.sh --changed REVISION          those of files that differ from that revision, the patches themselves
#                                                among them; MUTANTS_MOST=N: only so many, others for each commit
#   tests/mutants.sh --refresh [NAME]...         writes anew those that apply only where lines have moved, or one beside
#                                                them has changed; what they change must be as it was, in the same
#                                                function and nowhere else. Runs nothing
#
# tests/mutants/NAME.patch is a unified diff below two lines:
#   # fault: one sentence that says what is wrong now
#   # seen by: unit/test_x unit/test_y:a_case* lint/circles ...
# A test is a program or a script under tests/, with a filter for its cmocka cases if need be. A fault is caught if one
# of its tests fails, or hangs. Every one of them is run first without a fault: one that fails or does not run then
# sees nothing. Where all tests of a fault are skipped, as those that need PyTorch where there is none, so is the fault.
# The copy and the logs are in build/mutants; what is built there is kept for the next time.
set -uf
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE MAKEFLAGS MFLAGS MAKELEVEL
build=${BUILD:-build/gcc}
cc=${CC:-gcc} san=${SAN:-} opt=${OPT:--O2}
here=$PWD
place=$here/build/mutants
tree=$place/tree
logs=build/mutants/logs
base_limit=${MUTANTS_LIMIT:-900} # seconds a test may take without a fault; with one, 30 and four times as long as without

[ -f tests/mutants.sh ] || { echo "run it from the root of the tree"; exit 1; }
command -v git >/dev/null 2>&1 || { echo "make mutants needs git, which plants the faults and undoes them: apt-get install git"; exit 1; }
case $build in /*) echo "BUILD=$build: give the folder from the root of the tree"; exit 1 ;; esac
mkdir -p "$place" && rm -rf "$logs" && mkdir -p "$logs" || exit 1
exec 9>"$place/lock"
flock -n 9 || { echo "$place is in use by another run"; exit 1; }
# What make check-python has installed is here, not in the copy.
[ -n "${PYTHON:-}" ] || [ ! -x "$here/build/python/bin/python3" ] || export PYTHON="$here/build/python/bin/python3"
case $san in *thread*) export TSAN_OPTIONS="suppressions=$tree/tests/tsan.supp ${TSAN_OPTIONS:-}" ;; esac

in_copy() { git -C "$tree" --git-dir=.git --work-tree=. "$@"; }

# The copy is a repository of its own: its index is the tree without a fault, so a fault is applied strictly and undone
# exactly. Files that are equal stay untouched, so only what changed is built again.
copy_tree() {
    [ -d "$tree/.git" ] || git init -q "$tree" || return 1
    in_copy clean -fdq || return 1
    tests/files.sh >"$place/wanted"
    [ -s "$place/wanted" ] || return 1
    in_copy ls-files | LC_ALL=C sort | LC_ALL=C comm -13 "$place/wanted" - | while IFS= read -r file; do
        rm -f "$tree/$file"
    done
    while IFS= read -r file; do
        cmp -s "$file" "$tree/$file" && continue
        mkdir -p "$(dirname "$tree/$file")" && cp "$file" "$tree/$file" || return 1
    done <"$place/wanted"
    in_copy add -A && in_copy add -f --pathspec-from-file="$place/wanted"
}

header() { sed -n "s/^# $2:[[:space:]]*//p; /^diff /q; /^--- /q" "$1" | head -n 1; } # patch, key
label() { basename "$1" .patch; }

# What to build for the tests given: their programs, and for scripts and system tests what they start.
targets() {
    for spec in "$@"; do
        test=${spec%%:*}
        [ ! -f "tests/$test.c" ] || echo "$build/tests/$test"
        case $test in
        system/demo) echo "$build/tests/demo/demo" && echo all ;;
        system/*)
            find tests/system -name 'tool_*.c' | sed "s,^,$build/,; s,\.c\$,,"
            find tests/preloaded -name '*.c' | sed "s,^tests/preloaded,$build/tests,; s,\.c\$,.so,"
            echo all
            ;;
        *) [ ! -f "tests/$test.sh" ] || echo all ;;
        esac
    done | sort -u
}

build_copy() { # log, tests
    log=$1
    shift
    make -C "$tree" --no-print-directory -j"$(nproc)" PREREQS_PRESENT=1 CC="$cc" SAN="$san" OPT="$opt" \
        $(targets "$@") >"$log" 2>&1 </dev/null 9>&-
}

# Daemons and trainers of a test that was ended are sessions of their own, and would work on beside all tests to come.
end_left() {
    set +f
    for environ in $(grep -lszx "MUTANTS_RUN=$$" /proc/[0-9]*/environ); do
        pid=${environ#/proc/}
        kill -9 "${pid%/environ}" 2>/dev/null
    done
    set -f
}

# Runs one test of the copy and says what came of it: passes, fails, hangs, skips, or ran nothing.
run_test() { # spec, seconds, log
    test=${1%%:*} filter=
    case $1 in *:*) filter=${1#*:} ;; esac
    program=$build/tests/$test
    [ ! -f "$tree/tests/$test.sh" ] || program=tests/$test.sh
    ( # the last line keeps the shell here, so that it reports a crash to the log, not to us
        cd "$tree" || exit
        export BUILD="$build" CC="$cc" SAN="$san" TEST_FILTER="$filter" MUTANTS_RUN=$$
        timeout -k 10 "$2" "$program"
        exit $?
    ) >"$3" 2>&1 </dev/null 9>&-
    status=$?
    end_left
    case $status in
    0) # cmocka is content with a filter that fits no case
        if [ -n "$filter" ] && ! grep -aq '^\[ *OK \]' "$3"; then echo "ran nothing"; else echo passes; fi ;;
    77) echo skips ;;
    124 | 137) echo hangs ;;
    *) echo fails ;;
    esac
}

# Why a patch is not worth a build; nothing if it is.
stale() { # patch, its tests
    patch=$1
    shift
    [ -n "$(header "$patch" fault)" ] || { echo "has no line '# fault: '"; return; }
    [ $# -gt 0 ] || { echo "has no line '# seen by: '"; return; }
    for spec in "$@"; do
        [ -f "tests/${spec%%:*}.c" ] || [ -f "tests/${spec%%:*}.sh" ] || { echo "there is no test ${spec%%:*}"; return; }
    done
    in_copy apply --check "$patch" 2>"$logs/$(label "$patch").apply" || echo "does not apply any more"
}

caught=0 skipped=0 others=0
row() { # verdict, name, what, fault
    printf '%-14s  %-28s  %s   (%s)\n' "$1" "$2" "$3" "$4"
    case $1 in
    caught) caught=$((caught + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) others=$((others + 1)) ;;
    esac
}

mode=run
case ${1:-} in
--refresh)
    mode=refresh
    shift ;;
--changed)
    mode=changed revision=${2:?"--changed what since: name a revision"}
    shift 2
    git rev-parse -q --verify "$revision^{commit}" >/dev/null ||
        { echo "skipped: this clone has no revision $revision"; exit 77; } ;;
--*) echo "mutants.sh: $1: it knows --changed REVISION and --refresh"; exit 1 ;;
esac

# The patches of files that differ from a revision, and those that do so themselves.
of_changed_files() { # revision
    git diff --name-only "$1" | while IFS= read -r file; do
        case $file in
        tests/mutants/*.patch) [ ! -f "$file" ] || echo "$file" ;;
        *) grep -lF -e "+++ b/$file" -r tests/mutants ;;
        esac
    done | sort -u >"$place/changed"
    commit=$(git rev-parse HEAD)
    while IFS= read -r patch; do
        printf '%s %s\n' "$(printf '%s' "$commit$patch" | cksum | cut -d' ' -f1)" "$patch"
    done <"$place/changed" | sort -n | sed 's/^[0-9]* //' | head -n "${MUTANTS_MOST:-100000}"
}

if [ $mode = changed ]; then
    set -- $(of_changed_files "$revision")
    echo "$# of the $(wc -l <"$place/changed") faults that are planted in what has changed since $revision"
    [ $# -gt 0 ] || exit 0
elif [ $# -eq 0 ]; then
    set +f
    set -- tests/mutants/*.patch
    set -f
fi
: >"$place/patches"
for name in "$@"; do
    case $name in *.patch) file=$name ;; *) file=tests/mutants/$name.patch ;; esac
    [ -f "$file" ] || { echo "there is no mutant $file"; exit 1; }
    case $file in /*) ;; *) file=$here/$file ;; esac
    printf '%s\n' "$file" >>"$place/patches"
done
copy_tree || { echo "cannot copy the tree to $tree"; exit 1; }

# What refresh asks of a patch before and after, hunk by hunk: with `what` = functions, in which function the change is;
# with `what` = places, how often what it changes is in the copy, with so much of its context.
# git names the function above a hunk, so a line of the context may be the head of a later one.
cat >"$place/hunks.awk" <<'AWK'
function name_of(line) {
    sub(/[ \t]+$/, "", line)
    if (match(line, /[A-Za-z_][A-Za-z_0-9]*\(/)) return substr(line, RSTART, RLENGTH - 1)
    return substr(line, 1, 80)
}
function places(    first, last, lines, n, i, j, found) {
    first = lead > context ? lead - context + 1 : 1
    last = trail > context ? count - (trail - context) : count
    n = 0
    while ((getline line < (tree "/" file)) > 0) lines[++n] = line
    close(tree "/" file)
    for (i = 0; i + last - first < n; i++) {
        for (j = first; j <= last && lines[i + 1 + j - first] == old[j]; j++) continue
        found += j > last
    }
    return found + 0
}
old_left + new_left == 0 && /^\+\+\+ / { file = $0; sub(/^\+\+\+ (b\/)?/, "", file); sub(/\t.*/, "", file) }
old_left + new_left == 0 && /^@@ / {
    split($2, from, ","); split($3, to, ",")
    old_left = from[2] == "" ? 1 : from[2]; new_left = to[2] == "" ? 1 : to[2]
    sub(/^@@ [^@]*@@ ?/, ""); name = name_of($0)
    lead = trail = count = changed = 0
    next
}
old_left + new_left == 0 || /^\\/ { next }
{ kind = substr($0, 1, 1); text = substr($0, 2) }
kind != "+" { old[++count] = text; old_left-- }
kind != "-" { new_left-- }
kind == "+" || kind == "-" { changed = 1; trail = 0 }
kind != "+" && kind != "-" {
    trail++
    if (!changed) lead++
    if (!changed && text ~ /^[A-Za-z_$]/) name = name_of(text)
}
old_left + new_left == 0 { print what == "places" ? places() : name }
AWK
hunks() { # what, patch, context
    LC_ALL=C awk -v what="$1" -v context="${3:-0}" -v tree="$tree" -f "$place/hunks.awk" "$2"
}

# With less of its context, if need be: then as git writes it now. Where other code looks alike, git may have taken that,
# and the fault would be another one: then the patch stays as it is, and `reason` says why.
refresh() { # patch
    reason="does not apply any more"
    for context in 2 1; do
        hunks places "$1" $context | awk '$1 > 1 { bad = 1 } END { exit bad }' ||
            { reason="with less of its context it applies at more than one place"; return 1; }
        in_copy apply --whitespace=nowarn -C$context "$1" 2>/dev/null || continue
        { sed '/^diff /,$d; /^--- /,$d' "$1" && in_copy diff; } >"$place/refreshed"
        in_copy checkout -q -- . && in_copy clean -fdq
        was=$(hunks functions "$1") is=$(hunks functions "$place/refreshed")
        [ "$was" = "$is" ] || { reason="was in $(echo $was), would be in $(echo $is)"; return 1; }
        mv "$place/refreshed" "$1"
        return
    done
    return 1
}

if [ $mode = refresh ]; then
    bad=0
    while IFS= read -r patch; do
        in_copy apply --check "$patch" 2>/dev/null && continue
        if refresh "$patch"; then echo "written anew  $(label "$patch"): look at it"; else
            echo "STALE         $(label "$patch"): $reason"
            bad=1
        fi
    done <"$place/patches"
    exit $bad
fi

# Without a fault: does it build, and which tests are there to see anything?
: >"$place/specs"
while IFS= read -r patch; do
    seen_by=$(header "$patch" 'seen by')
    [ -n "$(stale "$patch" $seen_by)" ] || printf '%s\n' $seen_by
done <"$place/patches" | sort -u >"$place/specs"
if [ -s "$place/specs" ]; then
    build_copy "$logs/base.build" $(cat "$place/specs") ||
        { echo "the tree does not build without a fault:"; tail -n 20 "$logs/base.build"; exit 1; }
fi
: >"$place/base" # spec, seconds it may take with a fault; or "skips"
while IFS= read -r spec; do
    log=$logs/base.$(echo "$spec" | tr -c 'a-zA-Z0-9_\n' -)
    begin=$(date +%s)
    outcome=$(run_test "$spec" "$base_limit" "$log")
    if [ "$outcome" = passes ]; then
        echo "$spec $((30 + 4 * ($(date +%s) - begin)))" >>"$place/base"
    else
        [ "$outcome" != skips ] || echo "$spec skips" >>"$place/base"
        echo "without a fault, $spec $outcome, so it sees nothing: $log"
        [ "$outcome" = skips ] || tail -n 40 "$log" | sed 's/^/      | /'
    fi
done <"$place/specs"

while IFS= read -r patch; do
    name=$(label "$patch")
    fault=$(header "$patch" fault)
    seen_by=$(header "$patch" 'seen by')
    reason=$(stale "$patch" $seen_by)
    [ -z "$reason" ] || { row STALE "$name" "$reason" "$fault"; continue; }
    usable= unskipped=
    for spec in $seen_by; do
        limit=$(awk -v spec="$spec" '$1 == spec { print $2 }' "$place/base")
        [ "$limit" = skips ] || unskipped=yes
        [ -z "$limit" ] || [ "$limit" = skips ] || usable="$usable $spec"
    done
    [ -n "$unskipped" ] || { row skipped "$name" "all of its tests are skipped here" "$fault"; continue; }
    [ -n "$usable" ] || { row 'NOT RUN' "$name" "none of its tests passes without a fault" "$fault"; continue; }
    if ! in_copy apply --whitespace=nowarn "$patch"; then
        row STALE "$name" "does not apply any more" "$fault"
    elif ! build_copy "$logs/$name.build" $usable; then
        row 'DOES NOT BUILD' "$name" "$logs/$name.build" "$fault"
    else
        by= passes=
        for spec in $usable; do
            limit=$(awk -v spec="$spec" '$1 == spec { print $2 }' "$place/base")
            outcome=$(run_test "$spec" "$limit" "$logs/$name.$(echo "$spec" | tr -c 'a-zA-Z0-9_\n' -)")
            case $outcome in
            fails) by="$by $spec" ;;
            hangs) by="$by $spec (hangs: over $limit s)" ;;
            passes) passes="$passes $spec" ;;
            *) passes="$passes $spec ($outcome)" ;;
            esac
        done
        if [ -n "$by" ]; then row caught "$name" "by$by" "$fault"; else row MISSED "$name" "by$passes" "$fault"; fi
    fi
    in_copy checkout -q -- . && in_copy clean -fdq || { echo "cannot undo $name in $tree"; exit 1; }
done <"$place/patches"

printf '%s caught, %s not, %s skipped\n' "$caught" "$others" "$skipped"
[ "$others" -eq 0 ] && [ $((caught + skipped)) -gt 0 ]

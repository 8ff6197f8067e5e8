#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No circle of files and no arrow upward, by include or by call (docs/ARCHITECTURE.md, "The rooms").
#
# A file is X.c with its X.h. It points to another by a line #include "…", or by a symbol that its object uses and the
# other's object defines. So a declaration written out by hand, a private header between two floors, or two files that
# call each other through a third are all seen, which the include lines alone do not show.
# A callback handed down at birth is no arrow: the part that calls it does not know whose it is.
set -u

# The law. `a > b`: a may point to b and to all that stands right of it; nothing points left.
# `b , c` may point to each other, as long as it makes no circle; `b | c` may not.
# A room is a folder, or a folder in one; inside of one that has no rows arrows may point anywhere, but in no circle.
# Rooms and files that no row connects do not know each other. Where a room has `*`, only arrows to the left and between
# `|` are forbidden, and files need no place in a row; in the others, a new file needs one.
law='
rooms      daemon > net | outer_opt > common
rooms      worker > kernels > common

daemon     dilocod > engine | check > control | runplan > peers | ground > transfer | membership > trainer | rounds > state > founding > keyring > event | jobs | rules | dconf | lag | dealing > supervisor > home > as_typed
daemon     dilococtl > ctl > founding > keyring > rules | dconf > supervisor > home > as_typed

worker     diloco-worker > train , sample > memory_plan | machine > ckpt , inner , data , speed , crew > model | moves > libdiloco
worker     diloco-worker > train > crew > launch > comm
worker     train > ckpt_write > ckpt > ckpt_folder > model
worker     train > ckpt_write > inner > model > comm
worker     data > blend | shard | sniff
worker     sample > tokenizer > cut | bpe > utf8
worker     diloco-gateway > gateway > libdiloco > gate

net        membership > sync > config > transport
net        transfer > transport

net/transport   link > zap , traffic
net/transport   link > wire
net/transport   *
net/transfer    *
net/config      view | certificate > config_log > config
net/config      *
net/membership  paxos > wire_paxos
net/membership  next_config > assign_roles
net/membership  *
net/sync        sync > sync_peers > sync_doubt > sync_fragment > sync_owner > sync_patience > sync_commit > sync_core > sync_types
net/sync        sync_core > owner
net/sync        sync_types > owner

outer_opt  *
kernels    *
common     *
'

objects_min=60 # far below what there is: with fewer, the tree was not built or the names of the folders have changed

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
bad=0

tests/files.sh daemon worker net outer_opt kernels common | grep -E '\.(c|h|cu|cuh|proto)$' >"$work/sources"

# The objects of these sources, not those that happen to lie in the build folder: a source that is gone leaves its own
# there. Some sources are compiled once for each instruction set, to X.base.o, X.avx2.o and so on. CUDA sources, and
# those that include its headers, have objects only where there is a compiler for them; those of cuDNN, where its header
# is, too.
set --
while IFS= read -r source; do
    case $source in
    *.c) stem=${source%.c} ;;
    *.cu) stem=${source%.cu} ;;
    *.proto) stem=gen/${source%.proto}.pb-c ;;
    *) continue ;;
    esac
    found=0
    for object in "$BUILD/$stem.o" "$BUILD/$stem".*.o; do
        [ -f "$object" ] || continue
        found=1
        set -- "$@" "$object"
        [ ! "$source" -nt "$object" ] || { echo "$object is older than $source: built?"; bad=1; }
    done
    case $source in
    *.cu) continue ;;
    kernels/cuda/cuda_attention.c | kernels/cuda/cuda_dnn*.c) [ -f "$BUILD/kernels/cuda/cuda_attention.o" ] || continue ;;
    kernels/cuda/*) [ -f "$BUILD/libdiloco-cuda.so" ] || continue ;;
    esac
    [ $found = 1 ] || { echo "$source has no object in $BUILD: built?"; bad=1; }
done <"$work/sources"
[ $bad = 0 ] || exit 1
[ $# -ge $objects_min ] || { echo "only $# objects in $BUILD, fewer than $objects_min: this proves nothing"; exit 1; }

nm -A -P "$@" >"$work/symbols" || { echo "nm failed"; exit 1; }

# Arrows, one a line: kind, from, to, what ties them.
awk -v prefix="$BUILD/" '
    function file_of(object) {
        object = substr(object, length(prefix) + 1)
        if (sub(/^gen\//, "", object)) { # generated: a file of its own, which includes none of ours
            sub(/\.o$/, "", object)
            return object
        }
        sub(/\.[^\/]*$/, "", object)
        return object
    }
    {
        object = $1
        sub(/:$/, "", object)
        if (object != last) { file = file_of(object); last = object }
    }
    # Weak ones count, too: W and V define, w and v use; u is unique, i chosen when the program starts.
    $3 ~ /^[ABCDGRSTVWiu]$/ && !(($2, file) in defined) { defined[$2, file] = 1; at[$2] = at[$2] " " file }
    $3 ~ /^[Uvw]$/ && !((file, $2) in used) { used[file, $2] = 1; use[++uses] = file " " $2 }
    END {
        for (i = 1; i <= uses; i++) {
            split(use[i], pair, " ")
            n = split(at[pair[2]], definers, " ")
            for (j = 1; j <= n; j++)
                if (definers[j] != pair[1]) print "symbol", pair[1], definers[j], pair[2]
        }
    }' "$work/symbols" >"$work/arrows"
set --
while IFS= read -r source; do
    case $source in *.proto) ;; *) set -- "$@" "$source" ;; esac
done <"$work/sources"
awk '
    FNR == 1 { file = FILENAME; sub(/\.[^.\/]*$/, "", file); print "file", file }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, part, "\"")
        to = part[2]
        sub(/\.[^.\/]*$/, "", to)
        if (to != file) print "include", file, to, FILENAME "-includes-" part[2]
    }' "$@" >>"$work/arrows" || exit 1

LAW=$law awk '
    function read_law(    lines, n, i, j, k, words, count, floor, at, name, sep) {
        n = split(ENVIRON["LAW"], lines, "\n")
        for (i = 1; i <= n; i++) {
            count = split(lines[i], words, " ")
            if (count == 0) continue
            has_rows[words[1]] = 1
            if (words[2] == "*") { any_order[words[1]] = 1; continue }
            floor = 0
            for (j = 2; j <= count; j++) {
                if (words[j] == ">") { floor++; continue }
                if (words[j] == "|" || words[j] == ",") continue
                name[j] = words[1] == "rooms" ? words[j] : words[1] "/" words[j]
                at[j] = floor
                if (!(name[j] in known)) { known[name[j]] = 1; names[++names_count] = name[j] }
                for (k = 2; k < j; k++) {
                    if (words[k] ~ /^[>|,]$/) continue
                    if (at[k] < floor) above[name[k], name[j]] = 1
                    else if (words[j - 1] == ",") mates[name[k], name[j]] = mates[name[j], name[k]] = 1
                    else apart[name[k], name[j]] = apart[name[j], name[k]] = 1
                }
            }
        }
        for (k = 1; k <= names_count; k++)
            for (i = 1; i <= names_count; i++)
                if ((names[i], names[k]) in above)
                    for (j = 1; j <= names_count; j++)
                        if ((names[k], names[j]) in above) above[names[i], names[j]] = 1
        for (i = 1; i <= names_count; i++)
            if ((names[i], names[i]) in above) fail("the law contradicts itself: " names[i] " is above itself")
    }
    function fail(text) { print text; bad = 1 }
    function room(file) { sub(/\/.*/, "", file); return file }
    function place(file,    part) { split(file, part, "/"); return part[1] "/" part[2] }

    # What the law says about an arrow.
    function down(from, to,    a, b) {
        a = room(from); b = room(to)
        if (a != b) return (a, b) in above
        if (place(from) != place(to)) { from = place(from); to = place(to) }
        else if ((a = place(from)) == from || !(a in has_rows)) return 1
        if (a in any_order) return !((to, from) in above) && !((from, to) in apart)
        return ((from, to) in above) || ((from, to) in mates)
    }
    function add_file(file,    a) {
        if (file in is_file) return
        is_file[file] = 1
        files[++files_count] = file
        a = room(file)
        if (a in known) used_place[a] = 1
        if (place(file) in known) used_place[place(file)] = 1
        else if (!(a in any_order)) fail(file " has no place in the table of this script")
        a = place(file)
        if (!(a in has_rows)) return
        used_place[a] = 1
        if (file in known) used_place[file] = 1
        else if (!(a in any_order)) fail(file " has no place in the table of this script")
    }
    function add_arrow(kind, from, to) {
        if ((kind, from, to) in has) return
        has[kind, from, to] = 1
        arrows[kind]++
        out[kind, from, ++out_count[kind, from]] = to
    }
    function tie(kind, from, to,    text) {
        if (kind != "include" && (from, to) in ties_count) {
            text = ties[from, to]
            if (ties_count[from, to] > 3) text = text " and " (ties_count[from, to] - 3) " more"
        }
        if (kind != "symbol" && (from, to) in includes) text = text (text == "" ? "" : "; ") includes[from, to]
        return text
    }

    # One walk from every file, nearest first: whom it reaches, and the shortest way back to itself.
    function walk(kind, start,    queue, head, tail, here, next_, i, parent, seen, way, first) {
        queue[tail = 1] = start
        for (head = 1; head <= tail; head++) {
            here = queue[head]
            for (i = 1; i <= out_count[kind, here]; i++) {
                next_ = out[kind, here, i]
                if (next_ == start && !(start in back)) {
                    first = start
                    for (way = here; way != start; way = parent[way]) if (way < first) first = way
                    # Told from its first file in the alphabet, so that a circle reads the same wherever one enters it.
                    parent[start] = here
                    way = first
                    back[start] = first
                    do {
                        way = parent[way]
                        back[start] = way " " back[start]
                        back_length[start]++
                    } while (way != first)
                }
                if (next_ == start || next_ in seen) continue
                seen[next_] = 1
                parent[next_] = here
                reach[start, next_] = 1
                queue[++tail] = next_
            }
        }
    }
    # Files that reach each other are one knot, of which one shortest circle is shown.
    function circles(kind, title,    i, j, a, n, best, members, size, hop, done) {
        split("", reach); split("", back); split("", back_length)
        for (i = 1; i <= files_count; i++) walk(kind, files[i])
        for (i = 1; i <= files_count; i++) {
            a = files[i]
            if (!(a in back) || a in done) continue
            members = best = ""
            size = 0
            for (j = 1; j <= files_count; j++) {
                if (files[j] != a && !((a, files[j]) in reach && (files[j], a) in reach)) continue
                done[files[j]] = 1
                members = members " " files[j]
                size++
                if (!(back[files[j]] in shown) && (best == "" || back_length[files[j]] < back_length[best])) best = files[j]
            }
            knots[kind]++
            if (members in shown) continue # symbols or includes alone tie the same files
            fail("circle of files, by " title ":")
            n = best == "" ? 0 : split(back[best], hop, " ")
            for (j = 1; j < n; j++) print "    " hop[j] " -> " hop[j + 1] " (" tie(kind, hop[j], hop[j + 1]) ")"
            if (size != n - 1) print "  one knot of " size " files:" members
            shown[members] = 1
            if (n) shown[back[best]] = 1
        }
    }

    BEGIN { read_law() }
    $1 == "file" { add_file($2); next }
    {
        add_file($2)
        add_file($3)
        add_arrow($1, $2, $3)
        add_arrow("both", $2, $3)
        if (!(($2, $3) in pair)) { pair[$2, $3] = 1; from[++pairs] = $2; to[pairs] = $3 }
        if ($1 == "include") { gsub(/-includes-/, " includes ", $4); includes[$2, $3] = $4 }
        else if (++ties_count[$2, $3] <= 3) ties[$2, $3] = ties[$2, $3] (ties_count[$2, $3] > 1 ? ", " : "") $4
    }
    END {
        for (i = 1; i <= names_count; i++)
            if (!(names[i] in used_place)) fail("the table of this script names " names[i] ", which does not exist")
        circles("symbol", "symbol")
        circles("include", "include")
        circles("both", "symbol and include")
        for (i = 1; i <= pairs; i++) {
            if (down(from[i], to[i])) continue
            if (!up++) fail("arrows that do not point down:")
            print "    " from[i] " -> " to[i] " (" tie("both", from[i], to[i]) ")"
        }
        if (arrows["symbol"] == 0 || arrows["include"] == 0) fail("no arrows at all: this proves nothing")
        printf "%d files, %d arrows (%d by symbol, %d by include), %d circles (%d by symbol, %d by include), %d arrows upward\n",
            files_count, arrows["both"], arrows["symbol"], arrows["include"],
            knots["both"], knots["symbol"], knots["include"], up
        exit bad
    }' "$work/arrows"

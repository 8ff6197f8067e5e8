#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/ROOMS.md is what the headers say of themselves, and what they say of their rooms is so.
#
#   tests/lint/rooms.sh            compares
#   tests/lint/rooms.sh --write    writes docs/ROOMS.md anew
#
# A room is a folder. Every header begins with `NAME: one sentence`. In each room one header, which the others call the
# room by, also has these lines, in this order, each of one line or more:
#
#   Owns: what lies here and nowhere else
#   Called by: net/sync, daemon/     the rooms that include headers of this one: exactly these. `daemon/` is all below
#                                    daemon/; `nobody`: none does. Words for people may follow behind a semicolon
#   Never includes: <zmq.h>, daemon/, common/env.h     no file of this room includes one of these. It may be left out
#
# Where arrows between rooms may point to is in circles.sh.
set -u
page=docs/ROOMS.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

tests/files.sh '*.c' '*.h' '*.cu' '*.cuh' | grep -E '^(daemon|worker|net|outer_opt|kernels|common)/' >"$work/files"
[ "$(wc -l <"$work/files")" -ge 200 ] || { echo "too few sources found: is this the root of the tree?"; exit 1; }

cat >"$work/program" <<'AWK'
function room_of(path) { sub(/\/[^\/]*$/, "", path); return path }
function stem_of(path) { sub(/.*\//, "", path); sub(/\.h$/, "", path); return path }
function complain(text) { print text >faults; bad = 1 }
function covers(entry, room) { return entry == room || (entry ~ /\/$/ && index(room "/", entry) == 1) }
function matches(entry, include) { return entry == include || (entry ~ /\/$/ && index(include, entry) == 1) }

# The first sentence of a text: up to a full stop before a capital letter or a bracket, or all of it.
function sentence(text) {
    if (match(text, /[.] [A-Z(`\[]/)) text = substr(text, 1, RSTART)
    sub(/[.]$/, "", text)
    gsub(/\|/, "\\|", text)
    return text
}

# The opening comment of a header, line by line without its stars.
function opening(line) {
    if (key == "" && line ~ /^(Owns|Called by|Never includes): /) key = "first"
    if (line ~ /^(Owns|Called by|Never includes): /) {
        key = line; sub(/:.*/, "", key); sub(/^[^:]*: */, "", line)
        if ((room, key) in said) complain(FILENAME ": this room has a line `" key ":` in " main[room] ", too")
        said[room, key] = line
        if (key == "Owns") main[room] = FILENAME
    } else if (line == "") { key = "none"; in_first = 0 }
    else if (key != "" && key != "none") said[room, key] = said[room, key] " " line
    else if (in_first) first[FILENAME] = first[FILENAME] " " line
}

FNR == 1 {
    room = room_of(FILENAME); header = FILENAME ~ /\.h$/; key = ""; in_first = 1; comment = 0
    if (!(room in seen)) { seen[room] = 1; rooms[++rooms_count] = room }
    if (header) { headers[++headers_count] = FILENAME; first[FILENAME] = ""; has_header[room] = 1 }
}
header && FNR == 2 && $0 == "/*" { comment = 1; next }
comment && /^ \*\// { comment = 0; next }
comment { line = $0; sub(/^ \* ?/, "", line); opening(line); next }
/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    include = $0; sub(/^[^"<]*/, "", include)
    if (include ~ /^"/) { include = substr(include, 2); sub(/".*/, "", include) } else sub(/>.*/, ">", include)
    from[++includes_count] = FILENAME; what[includes_count] = include
    if (include !~ /^</ && room_of(include) != room) called[room_of(include), room] = FILENAME
}

END {
    for (i = 1; i <= headers_count; i++) {
        file = headers[i]; stem = stem_of(file)
        if (index(first[file], " " stem ": ") != 1)
            complain(file ": it does not begin with `" stem ": ` and a sentence, below the licence, in a comment of its own")
    }
    for (i = 1; i <= rooms_count; i++) check_room(rooms[i])
    for (i = 1; i <= includes_count; i++) {
        r = room_of(from[i])
        for (j = 1; j <= never_count[r]; j++)
            if (matches(never[r, j], what[i]))
                complain(from[i] ": it includes " what[i] ", and " main[r] " says `Never includes: " never[r, j] "`")
    }
    if (!bad) write_page()
    exit bad
}

function check_room(r,    n, i, entries, text, other, found) {
    if (!has_header[r]) return
    if (!(r in main)) { complain(r "/: none of its headers has the lines `Owns:` and `Called by:`"); return }
    if (!((r, "Called by") in said)) { complain(main[r] ": a line `Called by:` is missing"); return }
    text = said[r, "Called by"]; sub(/[.]$/, "", text); sub(/;.*/, "", text)
    n = split(text, entries, /, */)
    for (i = 1; i <= rooms_count; i++) {
        other = rooms[i]
        if (!((r, other) in called)) continue
        found = 0; called_count[r]++
        for (j = 1; j <= n; j++) if (covers(entries[j], other)) { found = 1; used[r, j] = 1 }
        if (!found) complain(main[r] ": `Called by:` lacks " other " (" called[r, other] ")")
    }
    for (j = 1; j <= n; j++)
        if (!((r, j) in used) && !(entries[j] == "nobody" && called_count[r] == 0))
            complain(main[r] ": `Called by: " entries[j] "`, which includes no header of " r "/")
    text = said[r, "Never includes"]; sub(/[.]$/, "", text)
    never_count[r] = split(text, entries, /, */)
    for (j = 1; j <= never_count[r]; j++) never[r, j] = entries[j]
}

function write_page(    i, j, r, text) {
    print "# The rooms, by their headers\n"
    print "<!-- Written by tests/lint/rooms.sh --write from the first lines of the headers: change those. -->\n"
    print "[ARCHITECTURE.md](ARCHITECTURE.md#the-rooms) has the picture. A room is a folder; its header in bold speaks for it."
    for (i = 1; i <= rooms_count; i++) {
        r = rooms[i]
        if (!has_header[r]) continue
        print "\n## " r "/\n"
        print "- *Owns:* " said[r, "Owns"]
        print "- *Called by:* " said[r, "Called by"]
        if (said[r, "Never includes"] != "") print "- *Never includes:* " spans(said[r, "Never includes"])
        print "\n| header | what it is |\n|---|---|"
        for (j = 1; j <= headers_count; j++) {
            if (room_of(headers[j]) != r) continue
            text = first[headers[j]]; sub(/^ [^:]*: /, "", text)
            print "| " (headers[j] == main[r] ? "**`" stem_of(headers[j]) "`**" : "`" stem_of(headers[j]) "`") " | " sentence(text) " |"
        }
    }
}
function spans(text) { sub(/[.]$/, "", text); gsub(/, */, "`, `", text); return "`" text "`" }
AWK

: >"$work/faults"
xargs awk -v faults="$work/faults" -f "$work/program" <"$work/files" >"$work/page" || { cat "$work/faults"; exit 1; }
[ "${1:-}" != --write ] || { cp "$work/page" "$page"; exit; }
cmp -s "$work/page" "$page" && exit
diff "$page" "$work/page" | head -20
echo "$page is not what the headers say: tests/lint/rooms.sh --write writes it anew"
exit 1

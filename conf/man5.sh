#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual page of a configuration file, from its sample, which the programs' own tables print:
#
#   conf/man5.sh VERSION NAME 'what it is' 'who reads it' <conf/SAMPLE >docs/NAME.5
set -eu
awk -v version="$1" -v name="$2" -v what="$3" -v reader="$4" '
function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.'"'"']/, "\\\\\\&&", text)
    return text
}
BEGIN {
    printf ".TH %s 5 \"2026-11-23\" \"diloco %s\" \"File formats\"\n", toupper(name), version
    printf ".SH NAME\n%s \\- %s\n", roff(name), roff(what)
    print ".SH DESCRIPTION"
    print roff(reader)
    print "Lines of the form"
    print ".I key = value"
    print "stand below a section in brackets; a line that begins with # or ; says nothing. What is left out has its default."
}
function flush_text() {
    if (text != "") print text
    text = ""
}
/^\[/ { flush_text(); printf ".SH %s\n", roff($0); next }
/^#\[/ { flush_text(); printf ".SH %s\n", roff(substr($0, 2)); next }
/^# ?[a-z_]+ = / || /^#?[a-z_]+ =/ {
    line = $0
    sub(/^# ?/, "", line)
    printf ".TP\n.B %s\n", roff(line)
    if (text == "") text = roff("As above.")
    print text
    text = ""
    next
}
/^#/ {
    line = $0
    sub(/^# ?/, "", line)
    if (line ~ "^" name ": ") next # its first line
    if (line ~ /^(Default|One of|Unit|Range|Must be)/ && text != "") text = text "\n.br"
    text = text (text == "" ? "" : "\n") roff(line)
    next
}
/^$/ { if (text != "" ) { print ".PP"; flush_text() } }
END { flush_text() }
'

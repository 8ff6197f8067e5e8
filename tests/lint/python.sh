#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Python: what the oldest promised one can parse, lines up to 120 columns, files up to 700 lines and functions up to 70, no
# unfinished work; by pyflakes no import or name that is unused or nowhere; by mypy the types of the package.
set -u
command -v python3 >/dev/null 2>&1 || { echo "there is no python3"; exit 77; }
bad=0
package=worker/libdiloco/python
oldest=$(sed -n 's/^requires-python = ">=\(3\.[0-9]*\)"$/\1/p' $package/pyproject.toml)
[ -n "$oldest" ] || { echo "$package/pyproject.toml: no line requires-python = \">=3.N\""; exit 1; }
files=$(tests/files.sh '*.py')
case $files in
*$package/*) ;;
*) echo "no files of $package were found"; exit 1 ;;
esac

python3 -B - "${oldest#3.}" $files <<'END' || bad=1
import ast
import re
import sys

LINE, FILE, FUNCTION = 120, 700, 70
bad = False


def complain(path, line, what):
    global bad
    bad = True
    print(f"{path}:{line}: {what}")


def check(path, minor):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    lines = text.split("\n")
    if lines[-1]:
        complain(path, len(lines), "no newline at the end")
    below_licence = len(lines) - 2
    if below_licence > FILE:
        complain(path, 1, f"{below_licence} lines; at most {FILE}")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE:
            complain(path, number, f"{len(line)} columns; at most {LINE}")
        if line != line.rstrip() or "\t" in line:
            complain(path, number, "a tab, or blanks at the end")
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line, re.IGNORECASE):
            complain(path, number, "unfinished work")
    try:
        tree = ast.parse(text, path, feature_version=(3, minor))
    except SyntaxError as error:
        complain(path, error.lineno, f"Python 3.{minor} cannot parse it: {error.msg}")
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            long = node.end_lineno - node.body[0].lineno + 1
            if long > FUNCTION:
                complain(path, node.lineno, f"{node.name}() has {long} lines; at most {FUNCTION}")


for path in sys.argv[2:]:
    check(path, int(sys.argv[1]))
sys.exit(bad)
END

flakes=
for command in pyflakes3 pyflakes; do
    [ -n "$flakes" ] || ! command -v $command >/dev/null 2>&1 || flakes=$command
done
if [ -n "$flakes" ]; then
    $flakes $files || bad=1
else
    echo "skip: pyflakes3 is not installed, so nothing looked for names that are unused or nowhere"
fi

# Packages that happen to be installed make no difference: without them their types are anything.
types="mypy --strict --no-site-packages --ignore-missing-imports --allow-subclassing-any --no-warn-return-any \
--python-version $oldest --cache-dir /dev/null --no-error-summary"
if ! command -v mypy >/dev/null 2>&1; then
    echo "skip: mypy is not installed, so types were not compared"
elif ! said=$($types -c 'x = 1' 2>&1); then
    echo "skip: this mypy knows no Python $oldest, so types were not compared: $(echo "$said" | tail -n 1)"
else
    $types $package/diloco || bad=1
fi
[ $bad = 0 ] && echo "$(echo "$files" | wc -l) files hold, as Python $oldest reads them"
exit $bad

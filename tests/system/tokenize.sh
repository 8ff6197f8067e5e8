#!/bin/sh
# diloco.tokenize, as far as it needs only Python: with a tokenizer of letters. With real ones it is `make check-python`.
set -eu
: "${BUILD:?is not set: the folder of the programs, as in BUILD=build/gcc}"
case ${SAN:-} in
?*) echo "skip: the sanitizers see no Python"; exit 77 ;;
esac
command -v python3 >/dev/null 2>&1 || { echo "skip: there is no python3"; exit 77; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || { echo "skip: python3 is older than 3.9"; exit 77; }
cd "$(dirname "$0")/../python"
case $BUILD in /*) ;; *) BUILD=$(cd ../.. && pwd)/$BUILD ;; esac
export BUILD PYTHONDONTWRITEBYTECODE=1
exec python3 test_tokenize.py

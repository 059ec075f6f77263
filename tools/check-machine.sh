#!/bin/sh
# What a stock Debian lacks, said in one line each instead of a traceback from the middle.
# Usage: check-machine.sh PYTHON
python="$1"
package="${python##*/}-venv"
missing=""

if ! command -v "$python" >/dev/null 2>&1; then
    # The package brings Python itself too.
    missing="$missing $package"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$python is $("$python" --version 2>&1), and Crawlyard needs Python 3.11 or newer." >&2
    echo "Name another one: make ... PYTHON=python3.12" >&2
    exit 2
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    missing="$missing $package"
fi
command -v git >/dev/null 2>&1 || missing="$missing git"

[ -z "$missing" ] && exit 0
echo "Missing on this machine:$missing" >&2
echo "On Debian and Ubuntu: apt-get install -y$missing" >&2
exit 2

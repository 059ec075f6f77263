#!/bin/sh
# Installs into the virtual environment, and makes that first if need be.
# Usage: install.sh PYTHON VENV ARGUMENTS-OF-PIP-INSTALL...
set -eu
python="$1" venv="$2"
shift 2

if [ ! -x "$venv/bin/python" ]; then
    sh "$(dirname "$0")/check-machine.sh" "$python"
    echo "Making $venv"
    "$python" -m venv "$venv"
fi

# pip may be missing from an environment that something else has made.
pip() {
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip -q
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"
}

# uv is ten times as fast as pip, but pip alone is enough.
[ -x "$venv/bin/uv" ] || pip install uv || echo "uv cannot be had; pip does the work"

echo "Installing $*"
if [ -x "$venv/bin/uv" ] \
    && "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"; then
    exit 0
fi
pip install "$@"

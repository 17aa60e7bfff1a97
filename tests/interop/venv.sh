#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment of the interop tests once, outside the clone, and prints its python.
# BERTH_VENV names another place for it.
set -eu
requirements="safetensors==0.8.0 numpy==2.2.6"

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/berth
# Another set of versions, or another Python, is another environment.
key=$({ echo "$requirements" && python3 --version; } | cksum | cut -d' ' -f1)
venv=${BERTH_VENV:-$cache/interop-$key}

if [ ! -e "$venv/complete" ]; then
    echo "interop: making a Python environment with $requirements in $venv" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    # shellcheck disable=SC2086 # a list
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $requirements >&2
    touch "$venv/complete"
fi
echo "$venv/bin/python"

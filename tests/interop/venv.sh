#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a Python environment of the interop tests once, outside the clone, and prints its python.
#
#   tests/interop/venv.sh            safetensors alone; BERTH_VENV names another place for it
#   tests/interop/venv.sh models     transformers and bitsandbytes, 5 GB; BERTH_MODELS_VENV
#   tests/interop/venv.sh llama      llama.cpp, compiled for ten minutes; BERTH_LLAMA_VENV
set -eu
here=$(dirname "$0")
what=${1:-interop}
case $what in
interop)
    requirements="safetensors==0.8.0 numpy==2.2.6"
    packages=$requirements
    venv=${BERTH_VENV:-}
    ;;
models)
    # torch's wheel asks for more than it needs to be imported: the list says what it does need.
    requirements=$(sed 's/#.*//' "$here/models.txt")
    packages="--no-deps $requirements"
    venv=${BERTH_MODELS_VENV:-}
    ;;
llama)
    requirements=$(sed 's/#.*//' "$here/../bench/llama.txt")
    packages="--no-deps --require-hashes --requirement $here/../bench/llama.txt"
    venv=${BERTH_LLAMA_VENV:-}
    # Nothing but the library, and the machine left usable while it compiles.
    export CMAKE_ARGS="-DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=1
    ;;
*)
    echo "usage: tests/interop/venv.sh [models|llama]" >&2
    exit 2
    ;;
esac

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/berth
# Another set of versions, or another Python, is another environment.
key=$({ echo "$requirements" && python3 --version; } | cksum | cut -d' ' -f1)
venv=${venv:-$cache/$what-$key}

if [ ! -e "$venv/complete" ]; then
    echo "interop: making a Python environment in $venv" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    # shellcheck disable=SC2086 # lists
    if ! nice -n 19 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --no-cache-dir $packages >&2; then
        rm -rf "$venv"
        exit 1
    fi
    touch "$venv/complete"
fi
echo "$venv/bin/python"

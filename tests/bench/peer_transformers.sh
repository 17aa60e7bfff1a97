#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the seconds that transformers needs to load and quantize a model, where the memory
# that it takes has just been in use: of two runs in a row, the second's.
#
#   tests/bench/peer_transformers.sh FOLDER [nf4_dq|nf4|int8]      from the root of the tree
set -eu
python=$(tests/interop/venv.sh models)
"$python" tests/bench/peer_transformers.py "$@" >/dev/null 2>&1
result=$("$python" tests/bench/peer_transformers.py "$@" 2>/dev/null)
echo "peer: ${result#* } MiB above start-up" >&2
echo "${result% *}"

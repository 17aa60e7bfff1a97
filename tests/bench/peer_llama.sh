#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what llama.cpp needs to quantize a model, or to decode with it, as peer_llama.py tells it.
#
#   tests/bench/peer_llama.sh quantize|decode FOLDER SCRATCH      from the root of the tree
set -eu
python=$(tests/interop/venv.sh llama)
"$python" tests/bench/peer_llama.py "$@" 2>/dev/null

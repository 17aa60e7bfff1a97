#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what bitsandbytes updates, as peer_train.py tells it.
set -eu
python=$(tests/interop/venv.sh models)
"$python" tests/bench/peer_train.py 2>/dev/null

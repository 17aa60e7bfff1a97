#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the speeds of bitsandbytes, as peer_bitsandbytes.py tells them.
set -eu
python=$(tests/interop/venv.sh models)
"$python" tests/bench/peer_bitsandbytes.py 2>/dev/null

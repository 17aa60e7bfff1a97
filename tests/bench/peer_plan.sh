#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the seconds that transformers needs to infer the map of a 70B model.
set -eu
python=$(tests/interop/venv.sh models)
"$python" tests/bench/peer_plan.py 2>/dev/null

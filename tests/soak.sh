#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of build/fuzz/ under libFuzzer. `make soak` builds them first.
#
# EXECUTIONS  inputs in all, shared evenly by the targets (default 45000000)
# JOBS        targets at a time (default: the processors)
#
# What a target finds new is kept in build/soak/NAME/; an input that breaks it lies beside as
# NAME-crash-... and belongs, after the repair, into tests/fuzz/corpus/NAME/.
set -u

# One target: its log ends in libFuzzer's "Done N runs in S second(s)", or it has found something.
soak() # INPUTS PROGRAM
{
    name=${2##*/fuzz_}
    mkdir -p "build/soak/$name"
    dictionary=
    [ ! -e "tests/fuzz/$name.dict" ] || dictionary=-dict=tests/fuzz/$name.dict
    corpus=
    [ ! -d "tests/fuzz/corpus/$name" ] || corpus=tests/fuzz/corpus/$name
    # shellcheck disable=SC2086
    "$2" -runs="$1" -seed=1 -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="build/soak/$name-" $dictionary "build/soak/$name" $corpus \
        </dev/null >"build/soak/$name.log" 2>&1
    echo $? >"build/soak/$name.status"
}

if [ "${1:-}" = --one ]; then
    soak "$2" "$3"
    exit 0
fi
executions=${EXECUTIONS:-45000000}
targets=$(ls -d build/fuzz/fuzz_* 2>/dev/null)
# shellcheck disable=SC2086
set -- $targets
[ $# -gt 0 ] || { echo "soak: there are no fuzz targets in build/fuzz" && exit 1; }
share=$(((executions + $# - 1) / $#))
mkdir -p build/soak
rm -f build/soak/*.status

echo "soak: $# targets, $share inputs each"
printf '%s\n' "$@" | xargs -P "${JOBS:-$(nproc)}" -I '{}' "$0" --one "$share" '{}'

passed=0 failed=0 total=0
for target in "$@"; do
    name=${target##*/fuzz_}
    done=$(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 inputs in \2 s/p' \
        "build/soak/$name.log" | tail -n 1)
    if [ "$(cat "build/soak/$name.status")" = 0 ] && [ -n "$done" ]; then
        passed=$((passed + 1))
        total=$((total + ${done%% *}))
        echo "soak: $name: $done"
    else
        failed=$((failed + 1))
        echo "soak: $name: FAILED"
        tail -n 40 "build/soak/$name.log" | sed 's/^/    /'
    fi
done
echo "soak: $total inputs without a finding"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]

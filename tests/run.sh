#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs test programs, one line each, and sums them up.
#
#   tests/run.sh PROGRAM...      from the root of the tree; Python programs run by BERTH_PYTHON
#
# A program says how it went on its last line: `t: P passed, F failed, S skipped`. One that does not
# say it, or ends with a status other than 0, 1 or 77, has died and counts as one failed test. What
# a failing program printed is shown; of the others only notes and the reasons of skips. The last
# line is `N passed, N failed, N skipped`.
#
# T_WRAP     a command to run the programs under (valgrind -q ...)
# T_TIMEOUT  seconds a program may take, default 600
set -u
output=$(mktemp "${TMPDIR:-/tmp}/berth-run.XXXXXX") || exit 1
trap 'rm -f "$output"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0

for program in "$@"; do
    name=$(basename "$program" .sh)
    case $program in *.sh) name=$(echo "$program" | sed 's|^tests/||; s|\.sh$||; s|/run$||') ;; esac
    case $program in
    *.py) command="${BERTH_PYTHON:-python3} $program" ;;
    */*) command=$program ;;
    *) command=./$program ;;
    esac
    start=$(date +%s.%N)
    # shellcheck disable=SC2086 # commands with arguments
    timeout -k 10 "${T_TIMEOUT:-600}" ${T_WRAP:-} $command </dev/null >"$output" 2>&1
    status=$?
    end=$(date +%s.%N)
    # shellcheck disable=SC2046
    set -- $(grep -E '^t: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$output" | tail -n 1 |
        tr -cd '0-9 ')
    p=${1:-0} f=${2:-0} s=${3:-0} why=
    case $status in
    0 | 77) [ $# -eq 3 ] || why="ended without its last line" ;;
    1) [ $# -eq 3 ] && [ "$f" -gt 0 ] || why="ended with status 1" ;;
    124 | 137) why="did not end within ${T_TIMEOUT:-600} s" ;;
    *) why="died with status $status" ;;
    esac
    [ -z "$why" ] || f=$((f + 1))
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-28s %4d passed, %d failed, %d skipped  %s\n' "$name" "$p" "$f" "$s" \
        "$(echo "$start $end" | awk '{ printf "%5.1f s", $2 - $1 }')"
    if [ "$f" -gt 0 ]; then
        sed 's/^/    /' "$output"
        [ -z "$why" ] || echo "    FAILED: $name $why"
    else
        grep -E '^(note|skipped): ' "$output" | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]

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
# Tests are independent: one program a core runs at a time. Those that wait for a clock need hardly
# any of a core: they run beside these, one after the other, and come first when they want to run.
# What measures how long something takes comes last, and then shell scripts, one after the other,
# alone.
#
# T_JOBS     programs at a time, default: one a core
# T_WRAP     a command to run the programs under (valgrind -q ...)
# T_TIMEOUT  seconds a program may take, default 600
# T_BEHIND   groups of processes that work in the time that tests leave; what measures has none
# T_CLOCK    0: programs that hold something against the clock are left out
# T_THOROUGH set: programs that try a part of all moments of a kill or a power loss try all
set -u

is_script() # PROGRAM
{
    case $1 in *.sh) ;; *) return 1 ;; esac
}

# has WORD PROGRAM: as tests/programs.sh has it
has()
{
    case $(basename "$2") in
    test_*) grep -qx "$(basename "$2" | sed 's/^test_//')" "$folder/has.$1" ;;
    *) return 1 ;;
    esac
}

run_one() # FOLDER PROGRAM: its line, and its counts into the folder
{
    folder=$1 program=$2
    name=$(basename "$program" .sh)
    output=$folder/output.$name.$$
    block=$folder/block.$name.$$
    counts=$folder/counts.$name.$$
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
    echo "$p $f $s" >"$counts"
    {
        printf '%-28s %4d passed, %d failed, %d skipped  %s\n' "$name" "$p" "$f" "$s" \
            "$(echo "$start $end" | awk '{ printf "%5.1f s", $2 - $1 }')"
        if [ "$f" -gt 0 ]; then
            sed 's/^/    /' "$output"
            [ -z "$why" ] || echo "    FAILED: $name $why"
        else
            grep -E '^(note|skipped): ' "$output" | sed 's/^/    /'
        fi
    } >"$block"
    # Lines of one program stay together.
    flock "$folder" cat "$block"
    rm -f "$output" "$block"
}

tell_behind() # SIGNAL
{
    for group in ${T_BEHIND:-}; do
        kill -s "$1" -- "-$group" 2>/dev/null
    done
}

if [ "${1:-}" = --one ]; then
    run_one "$2" "$3"
    exit 0
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/berth-run.XXXXXX") || exit 1
waiting=
trap '[ -z "$waiting" ] || kill $waiting 2>/dev/null; tell_behind CONT; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
for word in waits alone; do
    tests/programs.sh $word >"$folder/has.$word" || exit 1
done
programs=0
for program in "$@"; do
    list=beside
    ! has waits "$program" || list=waiting
    ! has alone "$program" || list=alone
    ! is_script "$program" || list=scripts
    case ${T_CLOCK:-1}:$list in 0:waiting | 0:alone) continue ;; esac
    printf '%s\n' "$program" >>"$folder/$list"
    programs=$((programs + 1))
done

run() # LIST COMMAND...: its programs, by that command, xargs or what runs it; in a subshell
{
    list=$folder/$1
    shift
    [ ! -e "$list" ] || exec "$@" -I '{}' "$0" --one "$folder" '{}' <"$list"
}
run waiting xargs &
waiting=$!
(run beside nice -n 5 xargs -P "${T_JOBS:-$(nproc)}")
wait "$waiting"
waiting=
tell_behind STOP
(run alone xargs)
tell_behind CONT
(run scripts xargs)
cat "$folder"/counts.* 2>/dev/null | awk -v programs=$programs '
    { p += $1; f += $2; s += $3; n++ }
    END {
        if (n + 0 != programs) { # one of them could not even be started
            f += programs - n
            print "    FAILED: " programs - n " programs did not run"
        }
        printf "%d passed, %d failed, %d skipped\n", p, f, s
        exit f > 0 || p + s == 0
    }'

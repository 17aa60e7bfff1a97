#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line, character by character: each folder tests/cli/COMMAND/CASE holds
#
#   cmd      a script; it runs in an empty folder, with berth, berth-llama, make_model on its PATH
#   stdout   what it must print; absent: nothing
#   stderr   the same
#   exit     its exit code; absent: 0
#
#   tests/cli/run.sh [PATTERN]...        cases whose name contains a pattern; default: all
#   UPDATE=1 tests/cli/run.sh ...        writes what was printed as what is expected: read the diff
#
# Run by `make check`; BERTH and BERTH_BUILD say where the tool and its tests were built.
set -u
here=$(cd "$(dirname "$0")" && pwd)
BERTH=${BERTH:-$here/../../build/berth}
BERTH=$(readlink -f "$BERTH")
BERTH_BUILD=${BERTH_BUILD:-$(dirname "$BERTH")}
if ! [ -x "$BERTH" ] || ! [ -x "$BERTH_BUILD/tests/make_model" ]; then
    echo "FAILED: $BERTH or $BERTH_BUILD/tests/make_model is not built"
    echo "t: 0 passed, 1 failed, 0 skipped"
    exit 1
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/berth-cli.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0
mkdir "$scratch/bin" "$scratch/home"
ln -s "$BERTH" "$BERTH_BUILD/tests/make_model" "$scratch/bin/"
[ ! -x "$BERTH_BUILD/berth-llama" ] || ln -s "$BERTH_BUILD/berth-llama" "$scratch/bin/"

# Nothing of the caller's environment but what sanitizers need.
run_case()
{
    (
        cd "$scratch/work" || exit 99
        env -i HOME="$scratch/home" PATH="$scratch/bin:$PATH" LC_ALL=C.UTF-8 TERM=dumb \
            TMPDIR="${TMPDIR:-/tmp}" ASAN_OPTIONS="${ASAN_OPTIONS:-}" \
            UBSAN_OPTIONS="${UBSAN_OPTIONS:-}" TSAN_OPTIONS="${TSAN_OPTIONS:-}" \
            timeout 60 sh -c '. "$1" && . "$2"' sh "$here/helpers.sh" "$1/cmd" \
            <"/dev/null" >"$scratch/stdout" 2>"$scratch/stderr.raw"
        echo $? >"$scratch/exit"
    )
    # Where the case ran is of no interest.
    sed "s|$scratch|SCRATCH|g" "$scratch/stderr.raw" >"$scratch/stderr"
}

expect()
{
    file=$1/$2
    [ -e "$file" ] || file=$3
    cmp -s "$file" "$scratch/$2" && return 0
    diff -u "$file" "$scratch/$2" | sed "1,2d; s/^/    $2: /" | head -n 30
    return 1
}

keep()
{
    if [ "$(cat "$scratch/$2")" = "$3" ]; then
        rm -f "$1/$2"
    else
        cp "$scratch/$2" "$1/$2"
    fi
}

echo 0 >"$scratch/zero"
for case in "$here"/*/*/; do
    case=${case%/}
    name=${case#"$here"/}
    wanted=$([ $# -eq 0 ] && echo yes)
    for pattern in "$@"; do
        case $name in *"$pattern"*) wanted=yes ;; esac
    done
    [ "$wanted" = yes ] || continue
    rm -rf "$scratch/work" && mkdir "$scratch/work"
    run_case "$case"
    if [ "$(cat "$scratch/exit")" = 77 ]; then
        skipped=$((skipped + 1))
        echo "skipped: $name: $(cat "$scratch/stdout")"
    elif [ -n "${UPDATE:-}" ]; then
        keep "$case" stdout "" && keep "$case" stderr "" && keep "$case" exit 0
        passed=$((passed + 1))
    else
        problems=$(
            expect "$case" stdout /dev/null
            expect "$case" stderr /dev/null
            expect "$case" exit "$scratch/zero"
        )
        if [ -z "$problems" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            printf 'FAILED: %s\n%s\n' "$name" "$problems"
        fi
    fi
done
echo "t: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

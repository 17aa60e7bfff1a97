# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What t.h is for programs, for tests that are scripts, read by them from the root of the tree:
#
#   check WHAT COMMAND...   one test; what the command prints is shown if it fails
#   skip REASON             one that cannot be made
#   end                     the last line; its status is the script's
#   $scratch                a folder of the script's own, gone at its end; t.log in it is check's
#   $said                   a file that is shown with failures, too, if it is set
passed=0 failed=0 skipped=0 said=
scratch=$(mktemp -d "${TMPDIR:-/tmp}/berth-test.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

check()
{
    t_what=$1
    shift
    if "$@" >"$scratch/t.log" 2>&1; then
        passed=$((passed + 1))
        return 0
    fi
    failed=$((failed + 1))
    echo "FAILED: $t_what"
    sed 's/^/    /' "$scratch/t.log"
    [ -z "$said" ] || sed 's/^/    /' "$said"
    return 1
}

skip()
{
    skipped=$((skipped + 1))
    echo "skipped: $1"
}

end()
{
    echo "t: $passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}

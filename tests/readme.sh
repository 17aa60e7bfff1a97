#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does the README tell the truth? Every code block of README.md by its kind:
#
#   ```c        compiled against this build without a warning, static and shared, as ./example
#   ```console  each `$ command` is run, in order, in a folder like a clone after `make demo`;
#               what it prints must be what stands below it, but for times, rates and bytes read
#   ```sh       not run: each `make TARGET` must exist, and the rest be a shell's syntax
#   ```text     neither code nor output
#
# Run by `make check` (BERTH, BERTH_BUILD, BERTH_LIBS and CC come from there).
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
BERTH=$(readlink -f "${BERTH:-$root/build/berth}")
BERTH_BUILD=${BERTH_BUILD:-$(dirname "$BERTH")}
readme=${1:-$root/README.md}
# shellcheck source=tests/t.sh
. "$root/tests/t.sh"
export LC_ALL=C.UTF-8 TERM=dumb

# Blocks become files: 001.c, 002.console, ...
awk -v folder="$scratch" '
    /^```/ && !open { kind = substr($0, 4); open = 1; line = FNR
        file = sprintf("%s/%03d.%s", folder, ++n, kind); printf "" >file; print line >(file ".line")
        next }
    /^```/ { open = 0; close(file); next }
    open { print >file }
    END { if (open) print "unclosed" >(folder "/unclosed") }' "$readme"
check "every block is closed" test ! -e "$scratch/unclosed"

mkdir -p "$scratch/clone/build/demo"
ln -s "$BERTH" "$scratch/clone/build/berth"
demo_options=$(sed -n 's/^model_options="\(.*\)"$/\1/p' "$root/tests/demo.sh")
# shellcheck disable=SC2086 # a list of words
"$BERTH_BUILD/tests/make_model" "$scratch/clone/build/demo/model" $demo_options || exit 1

compile()
{
    instrument=${SAN:+-fsanitize=$SAN}
    # shellcheck disable=SC2086 # these are lists of words
    ${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Werror $instrument -I "$root/loader" -x c "$1" \
        -x none -o "$scratch/shared" -L "$BERTH_BUILD" -lberth -Wl,-rpath,"$BERTH_BUILD" &&
        ${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Werror $instrument -I "$root/loader" -x c \
            "$1" -x none -o "$scratch/clone/example" "$BERTH_BUILD/libberth.a" \
            ${BERTH_LIBS:--lcjson -lz -ldl -lm -pthread}
}

# What differs from run to run in a line that begins with io, and the peak of host memory, which
# decides on how wide its column is; a slow build also tells its progress.
hide_rates()
{
    sed -E '/^berth: [a-z]+ +[0-9]+%  /d
        s/^(tier|cpu|cuda:0)( .*[^ ]) +(peak|[0-9.]+ [KMG]iB)  ([^ ].*)/\1\2 \3 \4/
        s/^(cpu .*) [0-9.]+ [KMG]iB (host memory)/\1 N \2/
        /^io  /{ s/[0-9.]+ [KMG]?i?B( read|\/s| of host memory)/N\1/g; s/[0-9.]+ s/N s/g
        s/slowest: .*/slowest: .../ }' "$1"
}

# What a session at the prompt would look like.
replay()
{
    cd "$scratch/clone" || return 1
    grep '^\$ ' "$1" | cut -c3- | while IFS= read -r command; do
        printf '$ %s\n' "$command"
        sh -c "$command" </dev/null 2>&1
    done >"$scratch/session"
    hide_rates "$1" >"$scratch/expected" || return 1
    hide_rates "$scratch/session" >"$scratch/found" || return 1
    diff -u "$scratch/expected" "$scratch/found" | sed 1,2d >"$scratch/difference"
    cat "$scratch/difference"
    [ ! -s "$scratch/difference" ]
}

check_sh()
{
    sh -n "$1" || return 1
    targets=$(sed -n 's/^\(sudo \)*make *//p' "$1" | sed 's/#.*//' | tr ' ' '\n' | grep -v =)
    for target in $targets; do
        grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" "$root/Makefile" ||
            { echo "no target $target"; return 1; }
    done
}

for block in "$scratch"/[0-9]*; do
    case $block in *.line) continue ;; esac
    name="README.md:$(cat "$block.line")"
    case $block in
    *.c) check "$name: C" compile "$block" ;;
    *.console) check "$name: session" replay "$block" ;;
    *.sh) check "$name: sh" check_sh "$block" ;;
    *.text) ;;
    *) check "$name: a block of an unknown kind" false ;;
    esac
done
end

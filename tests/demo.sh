#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make demo`: writes a small sharded checkpoint, looks at it, notes its digests, then damages
# copies of it in three ways and shows what berth says. Ends green only if each verdict was the
# right one.
# Everything lies in build/demo and may be played with afterwards.
set -u
cd "$(dirname "$0")/.." || exit 1
BERTH=$(readlink -f "${BERTH:-build/berth}")
BERTH_BUILD=${BERTH_BUILD:-$(dirname "$BERTH")}
at=build/demo
wrong=0
bold='' green='' red='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') green=$(printf '\033[1;32m') red=$(printf '\033[1;31m')
    plain=$(printf '\033[0m')
fi

say()
{
    printf '\n%s\n' "$bold$*$plain"
}

# run EXPECTED ARGUMENT...: shows the command, runs it, compares its exit code
run()
{
    expected=$1
    shift
    echo "\$ berth $*"
    "$BERTH" "$@"
    code=$?
    if [ $code -eq "$expected" ]; then
        echo "${green}exit code $code, as it should be$plain"
    else
        echo "${red}exit code $code, but it should be $expected$plain"
        wrong=$((wrong + 1))
    fi
}

# Another value in the middle of a shard: no structure notices.
flip_bit()
{
    size=$(wc -c <"$1")
    old=$(od -An -tu1 -j $((size / 2)) -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf %o $((old ^ 4)))" |
        dd of="$1" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
}

rm -rf $at && mkdir -p $at || exit 1
say "A small checkpoint: a Llama of four layers in three shards, in $at/model"
"$BERTH_BUILD/tests/make_model" $at/model || exit 1
# shellcheck disable=SC2012 # names are our own
ls -l $at/model | awk 'NF > 8 { printf "%10d  %s\n", $5, $NF }'

say "What is in it, and where are its bytes?"
run 0 inspect $at/model

say "Is it whole? Then note a digest of every tensor."
run 0 verify $at/model --write-manifest

say "Later: are these still the same bytes?"
run 0 verify $at/model --digest

say "A copy in which one bit has flipped: whole, but not the same bytes."
cp -r $at/model $at/flipped && flip_bit $at/flipped/model-00002-of-00003.safetensors
run 0 verify $at/flipped
run 5 verify $at/flipped --digest

say "A copy of which a download has stopped early: no byte needs to be read to see it."
cp -r $at/model $at/cut && truncate -s -1000 $at/cut/model-00002-of-00003.safetensors
run 4 verify $at/cut

say "A copy without its last shard."
cp -r $at/model $at/missing && rm $at/missing/model-00003-of-00003.safetensors
run 4 verify $at/missing

echo
if [ $wrong -gt 0 ]; then
    echo "${red}demo: $wrong verdicts were not the expected ones$plain"
    exit 1
fi
echo "${green}demo: all seven verdicts were the expected ones; the files are in $at$plain"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Something big: a checkpoint of 2 GB in shards of 1 GB, verified by processes that may have 512 MiB
# of address space. How much they read is what the kernel counted, not what berth says.
#
#   tests/big.sh     after make, from the root of the tree; BIG_DIR: where the 2 GB go, /var/tmp
#
# Ends with `N passed, N failed, N skipped`.
set -u
build=${BERTH_BUILD:-$(make -s where)}
berth=$build/berth
place=${BIG_DIR:-/var/tmp}
mib=2048
limit_kib=524288
passed=0 failed=0 skipped=0

end()
{
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

check() # WHAT CONDITION...
{
    what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok: $what"
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        sed 's/^/    /' "$work/output"
    fi
}

# Runs a command within the limit. The kernel adds what a child did to its parent's counters once
# the child was waited for: sets $status and $read_bytes (from the disk).
run_limited()
{
    counters=$(sh -c '
        ulimit -v "$1" || exit 99
        output=$2
        shift 2
        "$@" >"$output" 2>&1 </dev/null
        status=$?
        while read -r key value; do
            case $key in
            read_bytes:) read_bytes=$value ;;
            esac
        done </proc/self/io
        echo "$status $read_bytes"
        ' sh "$limit_kib" "$work/output" "$@")
    # shellcheck disable=SC2086 # two numbers
    set -- $counters
    status=$1 read_bytes=$2
}

drop_cache()
{
    for file in "$work"/model/*.safetensors; do
        dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    done
}

# Once, and 1 % for headers and what a disk reads around them.
# shellcheck disable=SC2317 # called by check
is_read_once()
{
    echo "note: $1 bytes read, $bytes in the files"
    [ "$1" -ge "$bytes" ] && [ "$1" -le $((bytes + bytes / 100)) ]
}

if [ "$(df -Pk "$place" | awk 'NR == 2 { print int($4 / 1024) }')" -lt $((mib + 512)) ]; then
    echo "skipped: less than 2.5 GB free in $place"
    skipped=1
    end
fi
work=$(mktemp -d "$place/berth-big.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

make -s "$build/bench/make_shapes" || exit 1
"$build/bench/make_shapes" "random:$mib" "$work/model" || exit 1
bytes=$(cat "$work"/model/*.safetensors | wc -c)
largest=$(wc -c "$work"/model/*.safetensors | awk '$2 != "total" { print $1 }' |
    sort -n | tail -n 1)
check "a shard is larger than the limit" [ "$largest" -gt $((limit_kib * 1024)) ]

for io in direct buffered; do
    drop_cache
    run_limited "$berth" verify "$work/model" --io $io "--write-manifest=$work/$io.json"
    check "--io $io: a manifest is written" [ "$status" -eq 0 ]
    if [ "$read_bytes" -gt 0 ]; then
        check "--io $io: every byte comes from the disk once" is_read_once "$read_bytes"
    else
        echo "skipped: nothing here is read from a disk"
        skipped=$((skipped + 1))
    fi
done
check "both ways give the same manifest" cmp -s "$work/direct.json" "$work/buffered.json"

drop_cache
run_limited "$berth" verify "$work/model" --manifest "$work/direct.json"
check "the manifest holds" [ "$status" -eq 0 ]

# One bit in the middle of the last shard.
last=$work/model/model-00002-of-000002.safetensors
middle=$(($(wc -c <"$last") / 2))
byte=$(od -An -tu1 -j "$middle" -N 1 "$last" | tr -d ' ')
# shellcheck disable=SC2059 # an octal escape
printf "\\$(printf %03o $((byte ^ 16)))" |
    dd of="$last" bs=1 seek="$middle" conv=notrunc status=none
run_limited "$berth" verify "$work/model" --manifest "$work/direct.json"
check "one turned bit in 2 GB is found" [ "$status" -eq 5 ]
check "and its file named" grep -q model-00002-of-000002.safetensors "$work/output"
end

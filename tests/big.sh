#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Something big: a checkpoint of 2 GB in shards of 1 GB, verified by processes that may have 512 MiB
# of address space. Then a Llama of 2.2 GB, and one whose weights have 320 MiB each, quantized and
# turned back by processes that may have 288 MiB. It is loaded and quantized on the way within the
# same, and computed from the disk within 900 MiB. How much they read, write and use is what the
# kernel counted, not what berth says.
#
#   tests/big.sh     after make, from the root of the tree; BIG_DIR: where 5 GB go, /var/tmp
#
# Ends with `N passed, N failed, N skipped`.
set -u
build=${BERTH_BUILD:-$(make -s where)}
berth=$build/berth
place=${BIG_DIR:-/var/tmp}
mib=2048
limit_kib=524288
limit_of=v # address space; d: what is written to
# What a conversion may use (256 MiB), and 32 MiB for the program and its stacks.
convert_kib=294912
peak_kib=262144
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

# Runs a command within $limit_kib of memory: $limit_of as the shell's ulimit has it. The kernel
# adds what a child did to the counters of its parent once the child was waited for; what it used
# at most is asked while it runs.
# Sets $status, $read_bytes and $written_bytes (from and to the disk) and $peak (KiB of memory).
# Malloc reserves address space for each thread without using it, so it is told not to.
run_limited()
{
    counters=$(sh -c '
        ulimit "-$1" "$2" || exit 99
        output=$3 peak=0
        shift 3
        MALLOC_ARENA_MAX=1 "$@" >"$output" 2>&1 </dev/null &
        child=$!
        running=1
        while [ -n "$running" ]; do
            running=
            while read -r key value unit; do
                case $key in
                VmHWM:) running=1 peak=$value ;;
                esac
            done 2>/dev/null <"/proc/$child/status"
            sleep 0.05
        done
        wait $child
        status=$?
        while read -r key value; do
            case $key in
            read_bytes:) read_bytes=$value ;;
            write_bytes:) written_bytes=$value ;;
            esac
        done </proc/self/io
        echo "$status $read_bytes $written_bytes $peak"
        ' sh "$limit_of" "$limit_kib" "$work/output" "$@")
    # shellcheck disable=SC2086 # four numbers
    set -- $counters
    status=$1 read_bytes=$2 written_bytes=$3 peak=$4
}

drop_cache()
{
    for file in "$work"/*/*.safetensors; do
        dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    done
}

# Once, and some percent for headers, companions, and what a disk reads around them.
# shellcheck disable=SC2317 # called by check
is_once()
{
    echo "note: $1 bytes, $2 in the files"
    [ "$1" -ge "$2" ] && [ "$1" -le $(($2 + $2 * $3 / 100)) ]
}

# Not counted: nothing here lies on a disk.
check_once() # WHAT COUNTED BYTES PERCENT
{
    if [ "$2" -gt 0 ]; then
        check "$1" is_once "$2" "$3" "$4"
    else
        echo "skipped: $1: no disk is behind $place"
        skipped=$((skipped + 1))
    fi
}

# The weights' bytes of a model.
bytes_in()
{
    cat "$1"/*.safetensors | wc -c
}

if [ "$(df -Pk "$place" | awk 'NR == 2 { print int($4 / 1024) }')" -lt 5632 ]; then
    echo "skipped: less than 5.5 GB free in $place"
    skipped=1
    end
fi
work=$(mktemp -d "$place/berth-big.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

make -s "$build/bench/make_shapes" || exit 1
"$build/bench/make_shapes" "random:$mib" "$work/model" || exit 1
bytes=$(bytes_in "$work/model")
largest=$(wc -c "$work"/model/*.safetensors | awk '$2 != "total" { print $1 }' |
    sort -n | tail -n 1)
check "a shard is larger than the limit" [ "$largest" -gt $((limit_kib * 1024)) ]

for io in direct buffered; do
    drop_cache
    run_limited "$berth" verify "$work/model" --io $io "--write-manifest=$work/$io.json"
    check "--io $io: a manifest is written" [ "$status" -eq 0 ]
    check_once "--io $io: every byte comes from the disk once" "$read_bytes" "$bytes" 1
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
rm -rf "$work/model"

# ---- conversions ----

# convert STEP COMMAND IN OUT OPTION...: within the limit, every byte written once. Sets
# $source_bytes to what was read from the disk.
convert()
{
    step=$1 out=$4
    shift
    drop_cache
    run_limited "$berth" "$@" --progress never
    source_bytes=$read_bytes
    check "$step" [ "$status" -eq 0 ]
    [ "$status" -eq 0 ] || end
    tail -n 2 "$work/output"
    echo "note: $peak KiB of memory at most"
    check "$step: within $((peak_kib / 1024)) MiB" [ "$peak" -le $peak_kib ]
    check_once "$step: every byte is written once" "$written_bytes" "$(bytes_in "$out")" 1
    run_limited "$berth" verify "$out" --digest
    check "$step: the digests hold" [ "$status" -eq 0 ]
}

limit_kib=$convert_kib
make -s "$build/tests/make_model" || exit 1
"$build/bench/make_shapes" llama1b "$work/llama" || exit 1
"$berth" quantize "$work/llama" "$work/nf4" --type nf4 --double-quant --dry-run --json \
    >"$work/output"
planned=$(sed -n 's/.*"planned_memory": \([0-9]*\).*/\1/p' "$work/output")
echo "note: $planned bytes of memory are planned"
check "the plan stays within $((peak_kib / 1024)) MiB" [ "$planned" -le $((peak_kib * 1024)) ]

convert "quantizing 2.2 GB" quantize "$work/llama" "$work/nf4" --type nf4 --double-quant \
    --max-shard-size 200MB
check_once "quantizing 2.2 GB: every byte is read once" \
    "$source_bytes" "$(bytes_in "$work/llama")" 1
convert "dequantizing it" dequantize "$work/nf4" "$work/plain" --dtype bf16
check_once "dequantizing it: every byte is read once" \
    "$source_bytes" "$(bytes_in "$work/nf4")" 4

# ---- loads ----

# A simulated device reserves addresses and writes to none of them.
limit_of=d
drop_cache
run_limited "$berth" load "$work/llama" -m 0=4GiB,cpu=1GiB --type nf4 --double-quant \
    --devices 'sim:4GiB,backing=digest'
echo "note: $peak KiB of memory at most"
check "loading 2.2 GB, quantized on the way" [ "$status" -eq 0 ]
check "loading: within $((peak_kib / 1024)) MiB" [ "$peak" -le $peak_kib ]
check_once "loading: every byte is read once" "$read_bytes" "$(bytes_in "$work/llama")" 1

# From the disk, three times: for the prompt and for two tokens more.
link_bytes_of()
{
    "$berth" plan "$work/llama" -m "$1" --context 16 --json |
        sed -n 's/.*"link_bytes": \([0-9]*\), "link_rate".*/\1/p' | head -n 1
}

# shellcheck disable=SC2317 # called by check
is_streamed()
{
    echo "note: $1 bytes, $2 of a pass come from the disk"
    [ "$1" -ge $((3 * $2)) ] && [ "$1" -le $((5 * $2)) ]
}

limit_kib=921600
room=cpu=640MiB,disk=inf
link_bytes=$(link_bytes_of $room)
drop_cache
run_limited "$build/berth-llama" "$work/llama" --tokens 1,2,3 --generate 3 --context 16 \
    --max-memory $room --quiet
echo "note: $peak KiB of memory at most"
check "computing what comes from the disk" [ "$status" -eq 0 ]
check "computing: within $((limit_kib / 1024)) MiB" [ "$peak" -le $limit_kib ]
if [ "$read_bytes" -gt 0 ]; then
    check "computing: layers are read for each pass" is_streamed "$read_bytes" "$link_bytes"
else
    echo "skipped: computing: no disk is behind $place"
    skipped=$((skipped + 1))
fi
cp "$work/output" "$work/streamed"
"$build/berth-llama" "$work/llama" --tokens 1,2,3 --generate 3 --context 16 \
    --max-memory cpu=4GiB --quiet >"$work/output" 2>&1
check "the ids are those of a model in memory" cmp -s "$work/output" "$work/streamed"
limit_of=v limit_kib=$convert_kib

run_limited "$berth" diff "$work/llama" "$work/plain" --min-snr 15
check "no weight has lost more than NF4 costs" [ "$status" -eq 0 ]
run_limited "$berth" diff "$work/nf4" "$work/plain" --min-snr 50
check "what came back is what was stored" [ "$status" -eq 0 ]
rm -rf "$work/llama" "$work/nf4" "$work/plain"

# Holes on the disk: nothing to read there, but each weight is larger than the limit.
"$build/tests/make_model" "$work/wide" --sparse 1 --layers 1 --hidden 4096 --inner 40960 \
    --vocab 40960 --heads 32 --kv-heads 8 --shards 1 || exit 1
convert "quantizing weights larger than the limit" quantize "$work/wide" "$work/wide-nf4" \
    --type nf4 --double-quant
rm -rf "$work/wide" "$work/wide-nf4"

# 16 GB of holes, an embedding of 4 GB among them, onto a device that keeps checksums.
"$build/tests/make_model" "$work/wide" --sparse 1 --layers 5 --hidden 8192 --inner 28672 \
    --vocab 262144 --heads 64 --kv-heads 8 --shards 3 || exit 1
limit_of=d limit_kib=524288
for type in none nf4; do
    run_limited "$berth" load "$work/wide" -m 0=24GiB,cpu=1GiB --type $type \
        --devices 'sim:24GiB,backing=digest'
    echo "note: $peak KiB of memory at most"
    check "loading 16 GB as $type within 512 MiB" [ "$status" -eq 0 ]
    check "loading 16 GB as $type: the ring and 64 MiB" [ "$peak" -le $((176 * 1024)) ]
done
end

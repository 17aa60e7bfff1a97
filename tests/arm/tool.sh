#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tool built for AArch64 beside this machine's: what both write and say must be the same.
# Run by tests/arm/check.sh: BERTH is this machine's tool, ARM_BERTH and ARM_BERTH_PLAIN run the
# other one on two processors.
set -u
cd "$(dirname "$0")/../.." || exit 1
golden=../shared/golden/quant
# shellcheck source=tests/t.sh
. tests/t.sh

says_level()
{
    "$1" devices | grep -w "$2"
}

# Both read the same folder and have the same to say of it, but how long it took and by which way.
say_the_same()
{
    "$BERTH" "$@" --json >"$scratch/all" || return
    grep -vE '"(bytes_read|seconds|io_path)"' "$scratch/all" >"$scratch/ours"
    "$ARM_BERTH" "$@" --json >"$scratch/all" || return
    grep -vE '"(bytes_read|seconds|io_path)"' "$scratch/all" | diff "$scratch/ours" -
}

# write_the_same COMMAND MODEL OPTION...
write_the_same()
{
    command=$1 model=$2
    shift 2
    rm -rf "$scratch/here" "$scratch/there"
    "$BERTH" "$command" "$model" "$scratch/here" "$@" -q &&
        "$ARM_BERTH" "$command" "$model" "$scratch/there" "$@" -q &&
        diff -r "$scratch/here" "$scratch/there"
}

# The library's own files, written by its other half: header and payload.
write_the_recorded()
{
    rm -rf "$scratch/there"
    "$ARM_BERTH" quantize "$golden/llama/source" "$scratch/there" --type nf4 --double-quant -q &&
        cmp "$golden/llama/canonical_nf4_dq.safetensors" "$scratch/there/model.safetensors"
}

"$BERTH_BUILD/tests/make_model" "$scratch/model" --hidden 256 --inner 704 --vocab 512 || exit 1
check "the level with products of four" says_level "$ARM_BERTH" neondot
check "the level of every processor" says_level "$ARM_BERTH_PLAIN" neon
check "inspect" say_the_same inspect "$scratch/model"
check "digests are written" "$ARM_BERTH" verify "$scratch/model" --write-manifest
check "and hold" say_the_same verify "$scratch/model" --digest
while read -r options; do
    # shellcheck disable=SC2086 # a list of words
    check "quantize $options" write_the_same quantize "$scratch/model" $options
    cp -r "$scratch/there" "$scratch/quantized"
    check "dequantize after $options" write_the_same dequantize "$scratch/quantized" --dtype bf16
    rm -rf "$scratch/quantized"
done <<OPTIONS
--type nf4 --double-quant --max-shard-size 1MB
--type nf4 --block-size 128 --storage bf16 --dtype float16
--type fp4 --double-quant --dtype float32
--type int8
OPTIONS
"$BERTH" quantize "$scratch/model" "$scratch/nf4" --type nf4 -q || exit 1
check "diff" say_the_same diff "$scratch/model" "$scratch/nf4"
if [ -d $golden ]; then
    check "a recorded file" write_the_recorded
else
    skip "the recorded checkpoints are not beside this tree"
fi
end

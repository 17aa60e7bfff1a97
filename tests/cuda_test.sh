#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tests/cuda.sh finds, with a stand-in for nvcc: kernels of whose code nothing is known but how
# long it is, and what ptxas says of them.
set -u
export LC_ALL=C
# shellcheck source=tests/t.sh
. tests/t.sh
export STAND_IN="$scratch"

# The kernels that have a limit, each with half an instruction or less per element.
kernels()
{
    for type in bf16 f16; do
        for end in "" _64 _double _64_double; do echo "decode_4bit_$type$end"; done
        for name in encode_nf4_${type}_64 encode_fp4_${type}_64 int8_encode_${type}_warp \
            int8_encode_${type}_cta int8_decode_$type int8_output_$type; do echo "$name"; done
        for end in "" _double; do
            for name in product experts together product16 product32; do
                echo "${name}_64_$type$end"
                echo "${name}_128_$type$end"
            done
            for name in few ring ring16 ring32; do echo "${name}_$type$end"; done
        done
    done
}

# As nvcc is asked: an object, and the code of every architecture beside it. What is compiled once
# more has longer kernels, the one in STAND_IN/long more so.
cat >"$scratch/nvcc" <<'SCRIPT'
#!/bin/sh
longer=0 architectures=
case $* in *-DENCODE_TILES=*) longer=16 ;; esac
while [ $# -gt 0 ]; do
    case $1 in
    arch=*) architectures="$architectures ${1##*=}" ;;
    --keep-dir) kept=$2 ;;
    -o) object=$2 ;;
    esac
    shift
done
while read -r name; do
    bytes=$((16 * (64 + longer)))
    [ "$name" != "$(cat "$STAND_IN/long")" ] || bytes=$((bytes + 64 * 16 * longer))
    echo ".section .text.berthi_$name,\"ax\",%progbits"
    echo ".zero $bytes"
done <"$STAND_IN/kernels" >"$STAND_IN/code.s"
for architecture in $architectures; do
    while read -r name; do
        echo "ptxas info    : Compiling entry function 'berthi_$name' for '$architecture'" >&2
        cat "$STAND_IN/said.$architecture" >&2 2>/dev/null || cat "$STAND_IN/said" >&2
    done <"$STAND_IN/kernels"
    cubin=$kept/kernels.compute_${architecture#sm_}.cubin
    ${CC:-cc} -c -o "$cubin" "$STAND_IN/code.s" && cp "$cubin" "$object" || exit 1
done
SCRIPT
chmod +x "$scratch/nvcc"

# say STACK STORES REGISTERS: of every kernel, for architectures of which nothing else is said
say()
{
    echo "    $1 bytes stack frame, $2 bytes spill stores, 0 bytes spill loads"
    echo "ptxas info    : Used $3 registers, 400 bytes cmem[0]"
}

# ends_with STATUS ARCHITECTURES: and prints every line of the standard input
ends_with()
{
    rm -rf "$scratch/out" # what is compiled already is not compiled again
    ends_again_with "$@"
}
ends_again_with()
{
    NVCC=$scratch/nvcc ARCHS="$2" tests/cuda.sh "$scratch/out" >"$scratch/printed" 2>&1
    status=$?
    cat "$scratch/printed"
    [ $status -eq "$1" ] || { echo "the status is $status" && return 1; }
    while read -r line; do
        grep -qF -- "$line" "$scratch/printed" || { echo "there is no \"$line\"" && return 1; }
    done
}

kernels >"$scratch/kernels"
: >"$scratch/long"
say 0 0 32 >"$scratch/said"
check "sound kernels" ends_with 0 sm_90 <<'LINES'
t: 4 passed, 0 failed, 0 skipped
LINES

say 40 0 32 >"$scratch/said"
check "a stack frame" ends_with 1 sm_75 <<'LINES'
berthi_ring_bf16:     40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
LINES

say 0 40 32 >"$scratch/said"
check "a spill" ends_with 1 sm_75 <<'LINES'
berthi_ring_bf16:     0 bytes stack frame, 40 bytes spill stores, 0 bytes spill loads
LINES

say 0 0 65 >"$scratch/said"
check "registers" ends_with 1 sm_75 <<'LINES'
berthi_decode_4bit_bf16: ptxas info    : Used 65 registers, 400 bytes cmem[0]
LINES

say 0 0 32 >"$scratch/said"
say 0 0 65 >"$scratch/said.sm_90"
check "one architecture of three" ends_with 1 "sm_75 sm_90 sm_120" <<'LINES'
sm_90: FAILED
berthi_decode_4bit_bf16: ptxas info    : Used 65 registers, 400 bytes cmem[0]
t: 5 passed, 1 failed, 0 skipped
LINES

rm "$scratch/said.sm_90"
check "what takes its time" ends_with 0 "sm_75 sm_90" </dev/null
echo 360.5 >"$scratch/out/kernels.seconds"
check "what has taken too long" ends_again_with 1 "sm_75 sm_90" <<'LINES'
the time it takes: FAILED
seconds of a processor, of 360.0
LINES
echo 3.5 >"$scratch/out/nothing.seconds"
check "on a machine that is slow" ends_again_with 0 "sm_75 sm_90" <<'LINES'
seconds of a processor, of 450.0
LINES
echo 500 >"$scratch/out/kernels.seconds"
check "too long on a machine that is slow" ends_again_with 1 "sm_75 sm_90" <<'LINES'
the time it takes: FAILED
LINES
export ARCH=90
check "of which a build has the half" ends_again_with 0 "sm_75 sm_90" <<'LINES'
note: a build: 250.
LINES
unset ARCH

check "what is not compiled yet" ends_again_with 0 "sm_75 sm_90 sm_100" <<'LINES'
t: 6 passed, 0 failed, 0 skipped
LINES

kernels | grep -v '^together_64_f16_double$\|^ring16_' >"$scratch/kernels"
echo decode_4bit_bf16_double >"$scratch/long"
check "kernels that are too long, or not there" ends_with 1 sm_90 <<'LINES'
instructions on sm_90: FAILED
berthi_decode_4bit_bf16_double: 32.50 > 6.3
(product|experts|together)_(64|128)_.*: 23 kernels of 24 were counted
ring16_(bf16|f16): 0 kernels of 2 were counted
ring16_(bf16|f16)_double: 0 kernels of 2 were counted
LINES

end

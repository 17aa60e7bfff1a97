#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels as machine code, judged without a device: `make cuda`.
#
#   tests/cuda.sh FOLDER         from the root of the tree; cubins and a table go to FOLDER: lines
#                                "KERNEL REGISTERS MOST INSTRUCTIONS MOST", "-" where none is held
#
# For every architecture each kernel compiles without warnings, spills and stack frames and within
# 64 registers, products by tensor cores, of experts by lanes, attention, and updates but for the
# usual one, within 128: half as many warps. (Products of 32 inputs and rings have what there is.)
# Those of many inputs, for sm_90a, have what their CTA begins with, and their wide products are not
# waited for one by one.
# Instructions per element are what one more tile or turn adds to the code, divided by the elements
# that a lane has in it: an instruction is 16 bytes of section .text.KERNEL. On sm_90 the figures
# that kernels are held to are limits; products of 16 and 32 inputs, whose weights have to stream at
# 60% of the memory's speed, decode them once and multiply two and four times. Rings are counted
# with what begins a tile, a fifth of their loop that few of its turns go through, and products by
# tiles with what one lane does, too: an H200 was seen to go through 1.95 for a weight.
#
# NVCC   the CUDA compiler; without one everything is skipped
# ARCHS  the architectures
# ARCH   those of them that a build of the library has, as numbers; all if not given
set -u
export LC_ALL=C

folder=$1
: "${ARCHS:=sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120}"
: "${ARCH:=$(echo "$ARCHS" | sed 's/sm_//g')}"
NVCC=$(command -v "${NVCC:-nvcc}" || command -v /usr/local/cuda/bin/nvcc) || {
    echo "skipped: no nvcc to compile the kernels with"
    echo "t: 0 passed, 0 failed, 1 skipped"
    exit 77
}
mkdir -p "$folder" || exit 1

# What kernels are held to, as awk: registers, and on sm_90 instructions per element; "-": these are
# only told.
# On sm_90: LIMIT KERNELS NAME, what the budget of memory's speed leaves, of so many kernels. For
# codes of absmax it leaves less than decoding takes: their limits are what it took when they came.
# (Rings have them by one of two ways, as rows lie, of which both are counted.)
limits()
{
    cat <<'LIMITS'
14 4 encode_(nf4|fp4)_(bf16|f16)_64
4.5 2 decode_4bit_(bf16|f16)_64
4.6 2 decode_4bit_(bf16|f16)
5.0 2 decode_4bit_(bf16|f16)_64_double
6.3 2 decode_4bit_(bf16|f16)_double
12 4 int8_encode_(bf16|f16)_(warp|cta)
7 2 int8_decode_(bf16|f16)
18 2 int8_output_(bf16|f16)
2 24 (product|experts|together)_(64|128)_.*
2.5 8 product16_.*
3.5 8 product32_.*
2.4 2 few_(bf16|f16)
3.3 2 few_(bf16|f16)_double
2.1 2 ring_(bf16|f16)
2.3 2 ring_(bf16|f16)_double
2.6 2 ring16_(bf16|f16)
2.7 2 ring16_(bf16|f16)_double
3.6 2 ring32_(bf16|f16)
3.8 2 ring32_(bf16|f16)_double
LIMITS
}
# shellcheck disable=SC2016 # awk's own
held='
    function most_registers(kernel) {
        if (kernel ~ /^berthi_(product(16)?_(64|128)|experts|together|attend|few)_/) return 128
        if (kernel ~ /^berthi_update_[a-z0-9]+$/) return 128
        if (kernel ~ /^berthi_(product32|ring)/) return 255
        if (kernel ~ /^berthi_wide(32|64|128)_/) return 128
        if (kernel ~ /^berthi_wide256_/) return 168
        return 64
    }
    function most_instructions(kernel, name) {
        for (name in most) if (kernel ~ "^berthi_" name "$") return most[name]
        return "-"
    }
    BEGIN { '$(limits | awk '{ printf "most[\"%s\"] = \"%s\"; ", $3, $1 }')' }'

# It has these architectures, and nothing that it is made of is newer: whoever compiles kernels
# ahead does so once.
is_fresh() # NAME "ARCH..."
{
    object=$folder/$1.o
    [ -s "$object" ] && [ "$2" = "$(cat "$folder/$1.architectures" 2>/dev/null)" ] &&
        [ -z "$(find kernels loader/berth.h tests/cuda.sh "$NVCC" -newer "$object" |
            head -n 1)" ]
}

# compile NAME FILE "ARCH..." FLAG...: one object, as the library has it; what it is made of, and
# what was said of it, go to a folder.
compile()
{
    name=$1 file=$2 architectures=$3 codes=
    shift 3
    ! is_fresh "$name" "$architectures" || return 0
    rm -rf "${folder:?}/$name" "$folder/$name.o"
    mkdir -p "$folder/$name"
    for arch in $architectures; do
        codes="$codes -gencode arch=compute_${arch#sm_},code=$arch"
    done
    times >"$folder/times"
    # shellcheck disable=SC2086 # flags
    "$NVCC" -c $codes -O2 -fmad=false -I. -Xptxas -v,-warn-spills --keep \
        --keep-dir "$folder/$name" "$@" -o "$folder/$name.o" "$file" >"$folder/$name.log" 2>&1 ||
        echo "nvcc failed" >>"$folder/$name.log"
    times >>"$folder/times"
    echo "$architectures" >"$folder/$name.architectures"
    # The second line of either is of what was waited for.
    awk 'NR % 2 == 0 { gsub(/[ms]/, " "); before = now; now = ($1 + $3) * 60 + $2 + $4 }
        END { print now - before }' "$folder/times" >"$folder/$name.seconds"
}

# Toolkits call it by one architecture, by both, or, where it is the only one, by neither.
cubin_of() # NAME ARCH
{
    find "$folder/$1" -name "*compute_${2#sm_}.*cubin" | grep . ||
        find "$folder/$1" -name '*.cubin'
}

# What was said of one architecture: what none is named by is said of all.
log_of() # NAME ARCH
{
    awk -v arch="$2" '
        /Compiling entry function/ { split($0, quoted, "\047"); at = quoted[4] }
        at == "" || at == arch || /^nvcc failed/' "$folder/$1.log"
}

# What ptxas said that it should not have: "KERNEL: finding" lines.
findings() # NAME ARCH
{
    log_of "$1" "$2" | awk "$held"'
        /warning|error|nvcc failed|Potential Performance Loss/ { print }
        /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
        /bytes stack frame/ &&
            !/^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/ {
            print kernel ": " $0 }
        /Used [0-9]+ registers/ {
            seen++
            match($0, /Used [0-9]+/)
            if (substr($0, RSTART + 5, RLENGTH - 5) + 0 > most_registers(kernel))
                print kernel ": " $0
        }
        END { if (seen + 0 == 0) print "no kernel was compiled" }'
}

# "KERNEL REGISTERS" lines, then "KERNEL INSTRUCTIONS" ones.
registers() # NAME ARCH
{
    log_of "$1" "$2" | awk '
        /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2] }
        /Used [0-9]+ registers/ { match($0, /Used [0-9]+/)
            print kernel, substr($0, RSTART + 5, RLENGTH - 5) }' | sort
}
# Behind a kernel's last instruction the same one pads it to whole lines of 128 bytes.
instructions() # CUBIN
{
    readelf -SW "$1" 2>/dev/null | sed 's/^ *\[ *[0-9]*\] *//' |
        awk '$1 ~ /^\.text\./ && $2 == "PROGBITS" { print substr($1, 7), $4, $5 }' |
        while read -r kernel offset size; do
            padding=$(od -An -v -tx1 -w16 -j $((0x$offset)) -N $((0x$size)) "$1" |
                tail -n 32 | uniq -c | awk 'END { print $1 }')
            echo "$kernel $((0x$size / 16 - padding))"
        done | sort
}

# Other numbers of tiles and turns are 32 elements of a lane more, or less where twice as many would
# not fit its registers (16 less of f32 rows). Products have 256 weights a lane more, two steps, met
# by up to 8 inputs (16, 32). Rings have twice as many, a line, for a tile of one group of rows, and
# where they have tiles of two twice as many again.
table() # ARCH
{
    registers kernels "$1" >"$folder/registers"
    instructions "$(cubin_of kernels "$1")" >"$folder/instructions"
    instructions "$(cubin_of other "$1")" >"$folder/more"
    join "$folder/registers" "$folder/instructions" | join - "$folder/more" |
        awk "$held"'$4 != $3 {
            elements = 32
            if ($1 ~ /^berthi_int8_encode_f32/) elements = 16
            if ($1 ~ /^berthi_(product[0-9]*|experts|together)_(64|128)_/) elements = 256
            if ($1 ~ /^berthi_few_/) elements = 768
            if ($1 ~ /^berthi_ring/) elements = 1536
            if ($1 ~ /^berthi_ring32/) elements = 512
            printf "%-40s %3d %3d %6.2f %4s\n", $1, $2, most_registers($1),
                ($4 > $3 ? $4 - $3 : $3 - $4) / elements, most_instructions($1) }'
}

over_limit() # TABLE
{
    limits | awk '
        FNR == NR { wanted[$3] = $2; next }
        {
            for (name in wanted)
                if ($1 ~ "^berthi_" name "$") {
                    rows[name]++
                    if ($4 + 0 > $5 + 0) print $1 ": " $4 " > " $5
                }
        }
        END {
            for (name in wanted)
                if (rows[name] + 0 < wanted[name])
                    print name ": " rows[name] + 0 " kernels of " wanted[name] " were counted"
        }' - "$1"
}

passed=0 failed=0
judge() # NAME FINDINGS
{
    if [ -s "$2" ]; then
        echo "$1: FAILED"
        sed 's/^/    /' "$2"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

judge_code() # NAME ARCH
{
    findings "$1" "$2" >"$folder/findings"
    judge "$2" "$folder/findings"
}

# A build of the library is to have its kernels in three minutes of two processors: its share of the
# architectures here. What is compiled already has told its time then. How slow the machine is just
# now is told by a kernel that does nothing: it took 2.8 seconds where the minutes were measured.
judge_time()
{
    cat "$folder/kernels.seconds" "$folder/wide.seconds" "$folder/nothing.seconds" |
        awk -v here="$ARCHS" -v built="$ARCH" '
            { seconds[NR] = $1 }
            END {
                all = split(here, names, " ")
                for (i = 1; i <= all; i++)
                    shared += index(" " built " ", " " substr(names[i], 4) " ") > 0
                printf "%.1f seconds of a processor, of %.1f\n",
                    seconds[1] * shared / all + seconds[2],
                    360 * (seconds[3] > 2.8 ? seconds[3] / 2.8 : 1)
            }' >"$folder/time"
    awk '$1 > $NF' "$folder/time" >"$folder/findings"
    judge "the time it takes" "$folder/findings"
}

compile kernels kernels/kernel_cuda.cu "$ARCHS"
is_wide=
case " $ARCHS " in *" sm_90 "*) is_wide=1 ;; esac
if [ -n "$is_wide" ]; then
    compile wide kernels/kernel_wide.cu sm_90a
    echo 'extern "C" __global__ void berthi_nothing(void) {}' >"$folder/nothing.cu"
    compile nothing "$folder/nothing.cu" "$ARCHS"
fi
for arch in $ARCHS; do
    judge_code kernels "$arch"
done
if [ -n "$is_wide" ]; then
    judge_code wide sm_90a
    judge_time
    sed 's/^/note: a build: /' "$folder/time"
    compile other kernels/kernel_cuda.cu sm_90 -DENCODE_TILES=4u -DDECODE_TURNS=8u \
        -DINT8_TURNS=4u -DINT8_DECODE_TURNS=8u -DPRODUCT_TURNS=2 -DINT8_OUTPUT_TURNS=16u
    table sm_90 >"$folder/table"
    over_limit "$folder/table" >"$folder/findings"
    judge "instructions on sm_90" "$folder/findings"
    echo "note: kernel, registers and most, instructions per element and most on sm_90:"
    sed 's/^/note:   /' "$folder/table"
fi
echo "t: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What check.sh does once everything is built: tests, sanitizers, recorders, speeds, a whole load,
# and the report. Each stage has a budget; what it leaves out is a row that says why.
#
#   tests/gpu/stages.sh FOLDER      rows, report.json and report.html go to FOLDER; rows that are
#                                   there already stay
#
# GPU_CHECK   the program of tests/gpu/command.h          BERTH  the tool
# T_DEVICE    cuda, or fake: what the kernels' tests run on
# TESTS       the folder of the test programs
# SANITIZER   compute-sanitizer, or "" where there is none
# RECORDERS   the folder of record_rcp.cu and record_bnb.py; NVCC and ARCH compile the first
# SHAPES      make_shapes, which makes the model to be loaded, in PLACE; or
# MODEL       a model that is there; its LAYERS
# DEVICES     what plays the plan's GPU: cuda, or a simulated one
# END         the time (seconds since the epoch) that all of it has to be over at
# TINY        tiny: shapes that a fake GPU gets through
# PATIENCE    how much longer than planned everything may take (1): tests do not go by the clock
set -u
export LC_ALL=C
folder=$1
rows=$folder/rows
programs="test_simt_kernels test_simt_int8 test_simt_int8_output test_simt_product
    test_simt_plain test_simt_experts test_simt_update test_simt_decoder"
# Small ones of every kind, for tools that slow each access down.
watched="test_simt_kernels:test_double_quantization test_simt_kernels:test_decoding_of_double
    test_simt_int8:test_outlier test_simt_int8_output:test_ test_simt_product:test_blocks_across
    test_simt_plain:test_odd_addresses test_simt_experts:test_bound test_simt_update:test_usual
    test_simt_decoder:test_rows"
: "${PATIENCE:=1}" "${BENCH_SECONDS:=8}"
failed=0

# A text for JSON: one line, without what would have to be escaped.
plain()
{
    printf '%s' "$1" | tr '\n\t' '  ' | tr -d '"\\\000-\037' | cut -c1-300
}
fact() # NAME VALUE
{
    printf '{"kind":"fact","name":"%s","value":"%s"}\n' "$1" "$(plain "$2")" >>"$rows"
}
skip() # NAME REASON
{
    printf '{"kind":"skipped","name":"%s","reason":"%s"}\n' "$1" "$(plain "$2")" >>"$rows"
    printf '%-52s skipped: %s\n' "$1" "$2"
}
tests_row() # NAME PASSED FAILED SKIPPED SECONDS
{
    printf '{"kind":"tests","name":"%s","passed":%d,"failed":%d,"skipped":%d,"seconds":%s}\n' \
        "$@" >>"$rows"
    printf '%-52s %d passed, %d failed, %d skipped\n' "$1" "$2" "$3" "$4"
    [ "$3" -eq 0 ] || failed=1
}

now()
{
    date +%s.%N
}
since() # TIME: seconds
{
    echo "$1 $(now)" | awk '{ printf "%.1f", $2 - $1 }'
}
left()
{
    echo $((END - $(date +%s)))
}
# limit SECONDS COMMAND...: no longer than that, and no longer than all of it may take.
limit()
{
    seconds=$(($1 * PATIENCE))
    shift
    [ "$seconds" -le "$(left)" ] || seconds=$(left)
    [ "$seconds" -gt 0 ] || return 124
    timeout -k 5 "$seconds" "$@"
}

# stage NAME FUNCTION: 0, or that it has failed; 77: it was left out.
stage()
{
    begun=$(now)
    status=0
    "$2" || status=$?
    case $status in
    0) word=done ;;
    77) word=skipped ;;
    *) word=failed failed=1 ;;
    esac
    printf '{"kind":"stage","name":"%s","seconds":%s,"status":"%s"}\n' "$1" "$(since "$begun")" \
        "$word" >>"$rows"
}

# ---- tests -------------------------------------------------------------------------------------

# What a program's last line counts, as a row; one that has none has died.
count_tests() # NAME OUTPUT BEGUN STATUS
{
    counts=$(grep -E '^t: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$2" | tail -n 1 |
        tr -cd '0-9 ')
    its_seconds=$(since "$3")
    # shellcheck disable=SC2086 # three numbers
    set -- "$1" "$2" "$4" $counts
    if [ $# -ne 6 ]; then
        tests_row "$1" 0 1 0 "$its_seconds"
        skip "$1" "ended with status $3: $(tail -n 1 "$2")"
        return
    fi
    [ "$5" -eq 0 ] || grep -E 'FAILED|failed' "$2" | head -n 20
    tests_row "$1" "$4" "$5" "$6" "$its_seconds"
    grep '^skipped: ' "$2" | while IFS= read -r line; do
        skip "$1" "${line#skipped: }"
    done
}

run_tests()
{
    rm -f "$folder/kernels"
    for program in $programs; do
        its_begin=$(now)
        its_status=0
        T_KERNELS=$folder/kernels limit 60 "$TESTS/$program" >"$folder/$program.log" 2>&1 ||
            its_status=$?
        count_tests "$program" "$folder/$program.log" "$its_begin" $its_status
    done
    "$GPU_CHECK" kernels | sort >"$folder/all"
    sort -u "$folder/kernels" 2>/dev/null | comm -12 - "$folder/all" >"$folder/run"
    missing=$(comm -23 "$folder/all" "$folder/run")
    fact "kernels that tests have launched" \
        "$(wc -l <"$folder/run") of $(wc -l <"$folder/all")"
    if [ -z "$missing" ]; then
        tests_row "every kernel was launched" 1 0 0 0
    else
        skip "kernels that no test has launched" "$missing"
        tests_row "every kernel was launched" 0 1 0 0
    fi
}

run_sanitizers()
{
    if [ -z "$SANITIZER" ]; then
        skip "compute-sanitizer" "it is not beside nvcc"
        return 77
    fi
    for tool in memcheck racecheck initcheck; do
        for one in $watched; do
            program=${one%:*}
            log=$folder/$tool.$program.log
            its_begin=$(now)
            its_status=0
            limit 20 "$SANITIZER" --tool $tool --error-exitcode 99 "$TESTS/$program" \
                "${one#*:}" >"$log" 2>&1 || its_status=$?
            if [ $its_status -eq 124 ]; then
                skip "$tool: $one" "it was not over within its time"
            elif ! grep -q '^=* *\(ERROR\|RACECHECK\) SUMMARY' "$log"; then
                # On some virtual machines it may not look at the GPU.
                skip "compute-sanitizer" "$(grep -m 1 '^=' "$log" || tail -n 1 "$log")"
                return 77
            elif [ $its_status -eq 0 ]; then
                tests_row "$tool: $one" 1 0 0 "$(since "$its_begin")"
            else
                tests_row "$tool: $one" 0 1 0 "$(since "$its_begin")"
            fi
        done
    done
}

# ---- what other machines can use --------------------------------------------------------------

# Versions of what it compares with.
record_bitsandbytes()
{
    if ! versions=$(limit 30 python3 -c 'import torch, bitsandbytes
print("torch", torch.__version__ + ", bitsandbytes", bitsandbytes.__version__)' 2>&1); then
        skip "record_bnb.py" "$(printf '%s\n' "$versions" | tail -n 1)"
        return
    fi
    fact "compared with" "$versions"
    if limit 150 python3 "$RECORDERS/record_bnb.py" "$folder/recorded" \
        >"$folder/record_bnb.log" 2>&1; then
        "$GPU_CHECK" tool "$rows" bitsandbytes "$folder/recorded/bnb_speed.json"
    else
        skip "record_bnb.py" "$(tail -n 1 "$folder/record_bnb.log")"
    fi
}

run_recorders()
{
    if [ ! -e "$RECORDERS/record_rcp.cu" ]; then
        skip "recorders" "no $RECORDERS: give RECORDERS=folder"
        return 77
    fi
    mkdir -p "$folder/recorded"
    if limit 60 "$NVCC" -O2 -arch="sm_$ARCH" -o "$folder/record_rcp" \
        "$RECORDERS/record_rcp.cu" >"$folder/record_rcp.log" 2>&1 &&
        limit 30 "$folder/record_rcp" "$folder/recorded" >>"$folder/record_rcp.log" 2>&1; then
        if gunzip -c tests/data/gpu/h200/rcp23.bin.gz |
            cmp -s - "$folder/recorded/rcp23.bin"; then
            fact "reciprocals" "for every mantissa those that the host computes"
        else
            fact "reciprocals" "others than the host's: $(cksum <"$folder/recorded/rcp23.bin")"
        fi
    else
        skip "record_rcp.cu" "$(tail -n 1 "$folder/record_rcp.log")"
    fi
    record_bitsandbytes
}

# ---- speeds ------------------------------------------------------------------------------------

run_speeds()
{
    budget=$((110 * PATIENCE))
    [ $budget -le $(($(left) - 15)) ] || budget=$(($(left) - 15))
    # shellcheck disable=SC2086 # no argument at all where it is empty
    limit $((budget / PATIENCE + 15)) "$GPU_CHECK" speed "$rows" $budget ${TINY:-}
}

# So many layers that the model and as much again fit where it lies, and quarter of the memory.
make_model()
{
    free_kib=$(df -Pk "$PLACE" | awk 'NR == 2 { print $4 }')
    LAYERS=$(((free_kib / 1048576 - 6) * 10 / 9))
    [ "$LAYERS" -le 32 ] || LAYERS=32
    host_kib=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
    [ "$LAYERS" -le $((host_kib / 524288)) ] || LAYERS=$((host_kib / 524288))
    if [ "$LAYERS" -lt 8 ]; then
        skip "a whole load" "less than 12 GB are free in $PLACE or in memory"
        return 77
    fi
    MODEL=$PLACE/berth-gpu-model.$$
    trap 'rm -rf "$MODEL" "$MODEL.expected"' EXIT
    trap 'exit 130' INT TERM
    if ! limit 60 "$SHAPES" "llama8b:$LAYERS" "$MODEL"; then
        skip "a whole load" "its model was not written within its time"
        return 77
    fi
}

run_load()
{
    [ -n "${MODEL:-}" ] || make_model || return
    # All weights on the GPU; then all layers streamed to it from the host.
    for how in resident streamed; do
        pin=
        [ $how = resident ] || pin="--pin model.layers.0-$((LAYERS - 1))=cpu"
        # shellcheck disable=SC2086 # an option and its value
        if ! limit 10 "$BERTH" plan "$MODEL" -t nf4 --double-quant -c 0 \
            -m "0=${GPU_MEMORY:-20GiB},cpu=${HOST_MEMORY:-24GiB}" $pin -f \
            -o "$folder/plan.$how.json" >"$folder/plan.$how.log" 2>&1 ||
            ! limit 60 "$BERTH" bench "$MODEL" --plan "$folder/plan.$how.json" \
                --devices "$DEVICES" --seconds "$BENCH_SECONDS" --json >"$folder/bench.$how.json" \
                2>"$folder/bench.$how.log"; then
            skip "a whole load, $how" \
                "$(cat "$folder/plan.$how.log" "$folder/bench.$how.log" 2>/dev/null | tail -n 1)"
            return 1
        fi
        "$GPU_CHECK" tool "$rows" "$how" "$folder/bench.$how.json" || return
    done
    skip "a token's time on the GPU" "the decoder computes on the host: layers alone are timed"
}

# What can be left out comes last.
stage "tests" run_tests
stage "speeds" run_speeds
stage "a whole load" run_load
stage "recorders" run_recorders
stage "compute-sanitizer" run_sanitizers
"$GPU_CHECK" page "$rows" "$folder/report.json" "$folder/report.html" || exit 1
echo "$folder/report.json and report.html: $(grep -c '"met":true' "$rows") met," \
    "$(grep -c '"met":false' "$rows") missed, $(grep -c '"kind":"skipped"' "$rows") left out"
exit $failed

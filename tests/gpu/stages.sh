#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What check.sh does once everything is built: tests, speeds, a whole load and tokens of a decoder,
# a conversion, recorders, sanitizers, and the report. Each stage has a budget; what it leaves out
# is a row that says why.
#
#   tests/gpu/stages.sh FOLDER      rows, report.json and report.html go to FOLDER; rows that are
#                                   there already stay
#
# GPU_CHECK   the program of tests/gpu/command.h          BERTH, LLAMA  the tool, the decoder
# T_DEVICE    cuda, or fake: what the kernels' tests run on
# TESTS       the folder of the test programs
# SANITIZER   compute-sanitizer, or "" where there is none
# RECORDERS   the folder of record_rcp.cu and record_bnb.py; NVCC and ARCH compile the first. What
#             they and the peers of this folder print stays in FOLDER/recorded
# SHAPES      make_shapes, which makes the model to be loaded, in PLACE, with GPU_LAYERS (16) at
#             most; or
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
    test_simt_plain test_simt_experts test_simt_few test_simt_ring test_simt_together test_simt_wide
    test_simt_update test_simt_decoder"
# Small ones of every kind, for tools that slow each access down.
watched="test_simt_kernels:test_double_quantization test_simt_kernels:test_decoding_of_double
    test_simt_int8:test_outlier test_simt_int8_output:test_ test_simt_product:test_blocks_across
    test_simt_plain:test_odd_addresses test_simt_experts:test_bound test_simt_few:test_what
    test_simt_ring:test_what
    test_simt_update:test_usual test_simt_decoder:test_rows test_simt_wide:test_every"
# And one that racecheck cannot follow: what a lane reads is written anew after another lane of its
# warp, behind the warp's barrier, has said that it may be. (That nobody says so too early is shown
# on the host, where lanes stop anywhere.)
unraced="test_simt_wide:test_split"
: "${PATIENCE:=1}" "${BENCH_SECONDS:=4}"
failed=0
# The rest is the report's, and of what does not end when it is told to.
END=$((END - 10))
converted=$PLACE/berth-gpu-converted.$$
trap 'rm -rf "$converted".*' EXIT
trap 'exit 130' INT TERM

# A text for JSON: one line, without what would have to be escaped, or, cut off, would be no text.
plain()
{
    printf '%s' "$1" | tr '\n\t' '  ' | tr -d '"\\\000-\037\200-\377' | cut -c1-300
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

# Why it did not do what it should have, as far as it said so.
why() # STATUS LOG
{
    case $1 in
    124 | 137) echo "it was not over within its time" ;;
    *) { echo "it ended with status $1" && grep . "$2"; } | tail -n 1 ;;
    esac
}
# try NAME SECONDS OUTPUT COMMAND...: what it prints goes to OUTPUT; if it fails, NAME is left out.
try()
{
    its_name=$1 its_limit=$2 its_output=$3
    shift 3
    its_status=0
    limit "$its_limit" "$@" >"$its_output" 2>"$its_output.log" || its_status=$?
    [ "$its_status" -ne 0 ] || return 0
    skip "$its_name" "$(why "$its_status" "$its_output.log")"
    rm -f "$its_output"
    return 1
}
# The same, and the stage has failed unless only time ran out.
must()
{
    try "$@" && return 0
    case $its_status in 124 | 137) ;; *) stage_failed=1 ;; esac
    return 1
}

# stage NAME FUNCTION: 0, or that it has failed; 77: it was left out.
stage()
{
    begun=$(now)
    status=0 stage_failed=0
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

# What a program's last line counts, as a row; one that has none has died, and so has one that ends
# otherwise than a line of tests that pass, or are skipped, does.
count_tests() # NAME OUTPUT SECONDS STATUS
{
    counts=$(grep -E '^t: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$2" | tail -n 1 |
        tr -cd '0-9 ')
    its_seconds=$3
    # shellcheck disable=SC2086 # three numbers
    set -- "$1" "$2" "$4" $counts
    died=0
    if [ $# -ne 6 ]; then
        set -- "$1" "$2" "$3" 0 0 0
        died=1
    elif [ "$5" -eq 0 ] && [ "$3" -ne 0 ] && [ "$3" -ne 77 ]; then
        died=1
    fi
    [ "$5" -eq 0 ] || grep -E 'FAILED|failed' "$2" | head -n 20
    tests_row "$1" "$4" $(($5 + died)) "$6" "$its_seconds"
    [ $died -eq 0 ] || skip "$1" "ended with status $3: $(why "$3" "$2")"
    grep '^skipped: ' "$2" | while IFS= read -r line; do
        skip "$1" "${line#skipped: }"
    done
}

# One program, beside the others: how it ended waits in a file for its turn among the rows.
run_program() # NAME
{
    its_begin=$(now)
    its_status=0
    T_KERNELS=$folder/$1.kernels limit 60 "$TESTS/$1" >"$folder/$1.log" 2>&1 || its_status=$?
    echo "$its_status $(since "$its_begin")" >"$folder/$1.end"
}

run_tests()
{
    rm -f "$folder"/*.kernels
    running=
    for program in $programs; do
        run_program "$program" &
        running="$running $!"
    done
    # shellcheck disable=SC2086 # numbers; the model's writer is not waited for
    wait $running
    for program in $programs; do
        read -r its_status its_seconds <"$folder/$program.end"
        count_tests "$program" "$folder/$program.log" "$its_seconds" "$its_status"
    done
    # Products by rings, by tiles and by code of sm_90a alone are not for every GPU.
    sed -n 's/^without //p' "$folder"/*.kernels 2>/dev/null | sort -u >"$folder/without"
    [ ! -s "$folder/without" ] ||
        skip "kernels that are not for this GPU" "$(cat "$folder/without")"
    "$GPU_CHECK" kernels | sort | comm -23 - "$folder/without" >"$folder/all"
    sort -u "$folder"/*.kernels 2>/dev/null | comm -12 - "$folder/all" >"$folder/run"
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
        for one in $watched $unraced; do
            [ "$tool $one" != "racecheck $unraced" ] || continue
            program=${one%:*}
            if [ "$(left)" -le 0 ]; then
                skip "compute-sanitizer: from $tool: $one on" "no time is left"
                return 77
            fi
            log=$folder/$tool.$program.log
            its_begin=$(now)
            its_status=0
            limit 20 "$SANITIZER" --tool $tool --error-exitcode 99 "$TESTS/$program" \
                "${one#*:}" >"$log" 2>&1 || its_status=$?
            if [ $its_status -eq 124 ] || [ $its_status -eq 137 ]; then
                skip "$tool: $one" "it was not over within its time"
            elif ! grep -q '^=* *\(ERROR\|RACECHECK\) SUMMARY' "$log"; then
                # On some virtual machines it may not look at the GPU.
                skip "compute-sanitizer" "$(grep '^=' "$log" | grep -m 1 -v COMPUTE-SANITIZER ||
                    tail -n 1 "$log")"
                return 77
            elif [ $its_status -eq 0 ] && grep -q '^t: 0 passed' "$log"; then
                skip "$tool: $one" "it is not for this GPU"
            elif [ $its_status -eq 0 ]; then
                tests_row "$tool: $one" 1 0 0 "$(since "$its_begin")"
            else
                tests_row "$tool: $one" 0 1 0 "$(since "$its_begin")"
            fi
        done
    done
}

# ---- what other machines can use --------------------------------------------------------------

# peer SCRIPT SECONDS MOST ROWS COMMAND...: the line that it prints at its end is kept, and ROWS put
# beside what is there; nothing is begun with fewer SECONDS left, or takes more than MOST.
peer()
{
    script=$1 needed=$2 most=$3 kind=$4
    shift 4
    printed=$folder/recorded/${script%.py}.json
    if [ "$(left)" -lt "$needed" ]; then
        skip "$script" "it may take $needed s, and $(left) s are left"
    elif try "$script" "$most" "$printed" "$@"; then
        "$GPU_CHECK" tool "$rows" "$kind" "$printed" || stage_failed=1
    fi
}

# From the page cache, as our warm load had its files.
peer_load()
{
    if [ -n "$no_model" ]; then
        skip "peer_load.py" "$no_model"
        return
    fi
    # shellcheck disable=SC2016 # it is the inner shell's
    peer "peer_load.py" 40 60 bitsandbytes sh -c \
        'cat "$1"/*.safetensors >/dev/null; exec python3 tests/gpu/peer_load.py "$1"' sh "$MODEL"
}

# Not every machine with a GPU has cmp.
is_same() # FILE FILE
{
    [ -s "$1" ] && [ -s "$2" ] && [ "$(cksum <"$1")" = "$(cksum <"$2")" ]
}

# Its codes and means alone: it is told to end before the speeds, which take minutes.
record_means()
{
    if [ "$(left)" -lt 40 ]; then
        skip "record_bnb.py" "it may take 40 s, and $(left) s are left"
    elif try "record_bnb.py" 60 "$folder/record_bnb.out" \
        python3 "$RECORDERS/record_bnb.py" "$folder/recorded" --quick; then
        known=tests/data/gpu/h200/bnb_means.json
        if is_same "$known" "$folder/recorded/bnb_means.json"; then
            fact "means by torch" "for every length those of $known"
        else
            fact "means by torch" \
                "others than those of $known: $(cksum <"$folder/recorded/bnb_means.json")"
        fi
    fi
}

# What bitsandbytes needs on this GPU and makes there, as far as there is time.
record_bitsandbytes()
{
    # Importing them takes ten seconds; what was installed without its papers is imported.
    try "bitsandbytes" 30 "$folder/versions" python3 -c 'import importlib, importlib.metadata
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return importlib.import_module(name).__version__
print("torch", version("torch") + ", bitsandbytes", version("bitsandbytes"))' || return
    fact "compared with" "$(cat "$folder/versions")"
    peer "peer_kernels.py" 25 60 bitsandbytes python3 tests/gpu/peer_kernels.py
    peer_load
    peer "peer_update.py" 20 40 update python3 tests/gpu/peer_update.py
    record_means
}

run_recorders()
{
    if [ ! -e "$RECORDERS/record_rcp.cu" ]; then
        skip "recorders" "no $RECORDERS: give RECORDERS=folder"
        return 77
    fi
    mkdir -p "$folder/recorded"
    if try "record_rcp.cu" 60 "$folder/record_rcp.out" "$NVCC" -O2 -arch="sm_$ARCH" \
        -o "$folder/record_rcp" "$RECORDERS/record_rcp.cu" &&
        try "record_rcp.cu" 30 "$folder/record_rcp.out" "$folder/record_rcp" \
            "$folder/recorded"; then
        if ! gunzip -c tests/data/gpu/h200/rcp23.bin.gz >"$folder/rcp23.known"; then
            skip "reciprocals" "those of the host are not unpacked: is there a gunzip?"
        elif is_same "$folder/rcp23.known" "$folder/recorded/rcp23.bin"; then
            fact "reciprocals" "for every mantissa those that the host computes"
        else
            fact "reciprocals" "others than the host's: $(cksum <"$folder/recorded/rcp23.bin")"
        fi
    fi
    record_bitsandbytes || :
    return "$stage_failed"
}

# ---- speeds ------------------------------------------------------------------------------------

run_speeds()
{
    # A load and tokens take 45 s; where there is little time they share it.
    most=$(($(left) - 45))
    [ "$most" -ge $(($(left) / 2)) ] || most=$(($(left) / 2))
    budget=$((110 * PATIENCE))
    [ "$budget" -le "$most" ] || budget=$most
    if [ "$budget" -le 0 ]; then
        skip "speeds" "no time is left"
        return 77
    fi
    # shellcheck disable=SC2086 # no argument at all where it is empty
    limit $((budget / PATIENCE + 15)) "$GPU_CHECK" speed "$rows" $budget ${TINY:-}
}

# ---- a load, and tokens ------------------------------------------------------------------------

# So many layers that the model and as much again fit where it lies, and quarter of the memory. It
# is written beside tests and speeds, which have no use for the disk.
begin_model()
{
    no_model=
    writer=
    [ -z "${MODEL:-}" ] || return
    free_kib=$(df -Pk "$PLACE" | awk 'NR == 2 { print $4 }')
    host_kib=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
    LAYERS=$(((free_kib / 1048576 - 6) * 10 / 9))
    [ "$LAYERS" -le $((host_kib / 524288)) ] || LAYERS=$((host_kib / 524288))
    if [ "$LAYERS" -lt "${GPU_LAYERS:-8}" ]; then
        no_model="there is room for $LAYERS layers in $PLACE or in memory"
        return
    fi
    [ "$LAYERS" -le "${GPU_LAYERS:-16}" ] || LAYERS=${GPU_LAYERS:-16}
    seconds=$((90 * PATIENCE))
    [ "$seconds" -le "$(left)" ] || seconds=$(left)
    if [ "$seconds" -le 0 ]; then
        no_model="no time is left"
        return
    fi
    MODEL=$PLACE/berth-gpu-model.$$
    trap end_model EXIT
    # Not by limit(): what is killed has to be timeout itself, which hands it on.
    timeout -k 5 "$seconds" "$SHAPES" "llama8b:$LAYERS" "$MODEL" >"$folder/model.log" 2>&1 &
    writer=$!
}

end_model()
{
    if [ -n "$writer" ]; then
        kill "$writer" 2>/dev/null
        wait "$writer" 2>/dev/null
    fi
    rm -rf "$MODEL" "$MODEL.expected" "$converted".*
}

has_model()
{
    if [ -n "$writer" ]; then
        its_status=0
        wait "$writer" || its_status=$?
        writer=
        [ "$its_status" -eq 0 ] || no_model="its model: $(why "$its_status" "$folder/model.log")"
        # What has not reached the disk cannot be dropped from the page cache before a cold read.
        [ "$its_status" -ne 0 ] || limit 20 sync -f "$MODEL" 2>/dev/null
    fi
    [ -z "$no_model" ] || skip "a whole load" "$no_model"
    [ -z "$no_model" ]
}

# All weights on the GPU; then all layers streamed to it from the host.
pin_of() # HOW
{
    [ "$1" = resident ] || echo "--pin model.layers.0-$((LAYERS - 1))=cpu"
}

generate_tokens() # HOW NUMBER
{
    # shellcheck disable=SC2046 # an option and its value
    must "$1: tokens" 30 "$folder/tokens.$1.json" "$LLAMA" "$MODEL" --tokens 1,2,3,4 \
        --generate "$2" --devices "$DEVICES" --compute device --max-memory "$token_memory" \
        $(pin_of "$1") --type nf4 --double-quant --activations bf16 --json --quiet
}

# The cold load and passes over layers that do not compute; the links that it measures, too.
bench_load() # HOW
{
    # shellcheck disable=SC2046
    must "$1: a whole load" 10 "$folder/plan.$1.out" "$BERTH" plan "$MODEL" -t nf4 \
        --double-quant -c 0 -m "$load_memory" $(pin_of "$1") -f -o "$folder/plan.$1.json" &&
        must "$1: a whole load" 60 "$folder/bench.$1.json" "$BERTH" bench "$MODEL" \
            --plan "$folder/plan.$1.json" --devices "$DEVICES" --seconds "$BENCH_SECONDS" \
            -o "$folder/links.$1.json" -f --json || return 0
    "$GPU_CHECK" tool "$rows" "$1" "$folder/bench.$1.json" || stage_failed=1
}

# Tokens beside what a plan predicts with the links that were measured.
tell_tokens() # HOW NUMBER
{
    [ -s "$folder/tokens.$1.json" ] || return 0
    set -- "$1" "$2" "$folder/tokens.$1.json" "$folder/bench.$1.json" "$folder/links.$1.json"
    if [ ! -s "$4" ]; then
        skip "$1: a token, over the prediction" "no links were measured"
        "$GPU_CHECK" tokens "$rows" "$1" "$3" || stage_failed=1
        return 0
    fi
    # shellcheck disable=SC2046
    must "$1: a token, over the prediction" 10 "$folder/plan.tokens.$1.out" "$BERTH" plan \
        "$MODEL" -t nf4 --double-quant -c $((4 + $2)) --cache-dtype f32 -m "$token_memory" \
        $(pin_of "$1") --link-file "$5" -f -o "$folder/plan.tokens.$1.json" || return 0
    "$GPU_CHECK" tokens "$rows" "$1" "$3" "$4" "$folder/plan.tokens.$1.json" || stage_failed=1
}

run_load()
{
    has_model || return 77
    load_memory="0=${GPU_MEMORY:-20GiB},cpu=${HOST_MEMORY:-24GiB}"
    token_memory="0=${GPU_MEMORY:-40GiB},cpu=${HOST_MEMORY:-24GiB}"
    rm -f "$folder"/tokens.*.json "$folder"/bench.*.json "$folder/load.json"
    # Before anything is read cold: writing has left the files in the page cache, and `berth
    # bench` drops them.
    must "warm: a whole load" 30 "$folder/load.json" "$BERTH" load "$MODEL" \
        --devices "$DEVICES" -m "$load_memory" -t nf4 --double-quant --json
    generate_tokens resident 32
    generate_tokens streamed 16
    bench_load resident
    bench_load streamed
    if [ -s "$folder/load.json" ] && [ -s "$folder/bench.resident.json" ]; then
        "$GPU_CHECK" load "$rows" warm "$folder/load.json" "$folder/bench.resident.json" ||
            stage_failed=1
    elif [ -s "$folder/load.json" ]; then
        skip "warm: load, quantized on the way" "no links were measured"
    fi
    tell_tokens resident 32
    tell_tokens streamed 16
    return "$stage_failed"
}

# ---- a conversion ------------------------------------------------------------------------------

convert_model() # HOW OPTION...
{
    how=$1
    shift
    must "$how: a checkpoint quantized" 30 "$folder/convert.$how.json" "$BERTH" quantize "$MODEL" \
        "$converted.$how" --type nf4 --double-quant --io buffered --json "$@" || return 1
    "$GPU_CHECK" convert "$rows" "$how" "$folder/convert.$how.json" || stage_failed=1
}

# By the processor and by the GPU: the same files.
run_conversion()
{
    [ -z "$no_model" ] || return 77 # a whole load has said why
    device=$DEVICES
    [ "$device" != cuda ] || device=cuda:0
    # Twice the model's linear layers in 4 bits, and twice what stays as it is.
    free_kib=$(df -Pk "$PLACE" | awk 'NR == 2 { print $4 }')
    if [ "$free_kib" -lt "$(du -sk "$MODEL" 2>/dev/null | awk 'END { print $1 + 1 }')" ]; then
        skip "a conversion" "there is no room for it in $PLACE"
        return 77
    fi
    its_begin=$(now)
    # `berth bench` has dropped it from the page cache, and who comes second would find it there.
    limit 20 cat "$MODEL"/*.safetensors >/dev/null 2>&1
    if convert_model cpu && convert_model device --device "$device"; then
        name="a conversion: every file is the processor's"
        its_status=0
        diff -r "$converted.cpu" "$converted.device" >"$folder/convert.diff" 2>&1 ||
            its_status=$?
        case $its_status in
        0) tests_row "$name" 1 0 0 "$(since "$its_begin")" ;;
        127) skip "$name" "there is no diff" ;;
        *)
            head -n 5 "$folder/convert.diff"
            tests_row "$name" 0 1 0 "$(since "$its_begin")"
            ;;
        esac
    fi
    rm -rf "$converted".*
    return "$stage_failed"
}

# What can be left out comes last.
begin_model
stage "tests" run_tests
stage "speeds" run_speeds
stage "a whole load" run_load
stage "a conversion" run_conversion
stage "recorders" run_recorders
stage "compute-sanitizer" run_sanitizers
"$GPU_CHECK" page "$rows" "$folder/report.json" "$folder/report.html" || exit 1
of_report() # PATTERN: how many rows have it
{
    grep -c -- "$1" "$folder/report.json"
}
echo "$folder/report.json and report.html: $(of_report '"met":true') met," \
    "$(of_report '"met":false') missed, $(of_report '"kind":"skipped"') left out"
[ "$(of_report '"void":true')" -eq 0 ] ||
    echo "VOID: $(of_report '"void":true') speeds, for the limits have moved meanwhile"
exit $failed

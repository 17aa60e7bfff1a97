#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The stages of `make gpu-check` on a GPU that is not there: the same script, programs and report,
# with the fake of tests/fake_cuda.h for the kernels, a simulated device for the load and the
# decoder, and scripts in the place of the sanitizer, which runs what it is given, of the recorders,
# and of what writes the model. No number of it is a measurement.
set -u
export LC_ALL=C
# shellcheck source=tests/t.sh
. tests/t.sh
gpu_check=$BERTH_BUILD/tests/make_gpu_check
rows=$scratch/out/rows

count() # PATTERN NUMBER: so many rows have it
{
    [ "$(grep -c -- "$1" "$rows")" -eq "$2" ]
}
has_row() # PATTERN
{
    grep -q -- "$1" "$rows"
}
has_line() # LINE TEXT
{
    printf '%s\n' "$2" | grep -qx -- "$1"
}

if ! why=$("$gpu_check" there); then
    skip "$why"
    end
fi
check "an unknown command is refused" test "$("$gpu_check" no 2>/dev/null; echo $?)" = 2

cat >"$scratch/sanitizer" <<'SCRIPT'
#!/bin/sh
# Without what the last argument of a real one would be slowed down by: one test of the program.
shift 4
"$@"
status=$?
echo "========= ERROR SUMMARY: 0 errors"
exit $status
SCRIPT
mkdir -p "$scratch/out" "$scratch/place" "$scratch/bin" "$scratch/recorders"
# A small model, wherever there is a little room.
cat >"$scratch/shapes" <<SCRIPT
#!/bin/sh
sleep 1
cp -r "$scratch/model" "\$2" && echo "\$1" >"$scratch/shape" && : >"\$2.expected"
SCRIPT
cat >"$scratch/bin/df" <<'SCRIPT'
#!/bin/sh
printf 'Filesystem 1024-blocks Used Available\nnone 99999999 1 99999999\n'
SCRIPT
# -O2 -arch=... -o PROGRAM SOURCE
cat >"$scratch/bin/nvcc" <<'SCRIPT'
#!/bin/sh
printf '#!/bin/sh\ngunzip -c tests/data/gpu/h200/rcp23.bin.gz >"$1/rcp23.bin"\n' >"$4"
chmod +x "$4"
SCRIPT
# What bitsandbytes needed, and made: record_bnb.py does not end without its last argument.
cat >"$scratch/bin/python3" <<'SCRIPT'
#!/bin/sh
case $1 in
-c) echo "torch 2, bitsandbytes 0" ;;
*/record_bnb.py)
    [ "$3" = --quick ] || exit 1
    cp tests/data/gpu/h200/bnb_means.json "$2" ;;
*/peer_kernels.py) echo '{"8192x28672":{"quantize_nf4_dq_us":1e9}}' ;;
*/peer_load.py)
    ls "$2"/*.safetensors >/dev/null || exit 1
    echo '{"from_pretrained_nf4_dq_first":{"seconds":1e9,"GBps":1e9},' \
        '"from_pretrained_nf4_dq_second":{"seconds":1e9,"GBps":1e9}}' ;;
*/peer_update.py) echo '{"adamw8_134M_us":1e9}' ;;
*) exit 1 ;;
esac
SCRIPT
: >"$scratch/recorders/record_rcp.cu"
chmod +x "$scratch/sanitizer" "$scratch/shapes" "$scratch"/bin/*
printf '{"kind":"fact","name":"quotes","value":"<b> & \\"c\\""}\n' >"$rows"
"$BERTH_BUILD/tests/make_model" "$scratch/model" --layers 4 --hidden 256 >/dev/null
PATH=$scratch/bin:$PATH GPU_CHECK=$gpu_check T_DEVICE=fake TESTS=$BERTH_BUILD/tests \
    LLAMA=$BERTH_BUILD/berth-llama SANITIZER=$scratch/sanitizer RECORDERS=$scratch/recorders \
    SHAPES=$scratch/shapes GPU_LAYERS=4 DEVICES='sim:64MiB,h2d=25GB/s' GPU_MEMORY=64MiB \
    HOST_MEMORY=1GiB PLACE=$scratch/place END=$(($(date +%s) + 100000)) TINY=tiny PATIENCE=100 \
    BENCH_SECONDS=1 NVCC=nvcc ARCH=90 tests/gpu/stages.sh "$scratch/out" >"$scratch/log" 2>&1
status=$?
[ $status -eq 0 ] || tail -n 30 "$scratch/log"
check "all stages succeed" test $status -eq 0

# Those that stages.sh names, which the Makefile has to build for it: programs.sh says so.
programs=$(sed -n '/^programs="/,/"$/p' tests/gpu/stages.sh | grep -o 'test_simt_[a-z0-9_]*')
watched=$(sed -n '/^watched="/,/"$/p' tests/gpu/stages.sh | grep -o 'test_simt_[a-z0-9_]*:' | wc -l)
number=$(echo "$programs" | wc -l)
check "programs of tests" test "$number" -ge 5
check "each has a row" count '"kind":"tests","name":"test_simt_' "$number"
for program in $programs; do
    check "the Makefile builds $program" has_line "${program#test_}" "$(tests/programs.sh gpu)"
done
kernels=$("$gpu_check" kernels | wc -l)
check "every kernel was launched" has_row \
    "\"kernels that tests have launched\",\"value\":\"$kernels of $kernels\""
check "no test fails" test "$(grep -c '"failed":[1-9]' "$rows")" -eq 0
check "three tools of the sanitizer" count '"name":"\(mem\|race\|init\)check: ' $((3 * watched + 2))
check "the model was made" test "$(cat "$scratch/shape")" = llama8b:4
check "and is gone" test -z "$(ls "$scratch/place")"
check "what it is compared with" has_row '"compared with","value":"torch 2, bitsandbytes 0"'
check "reciprocals are compared" has_row '"reciprocals","value":"for every mantissa'
check "means are compared" has_row '"means by torch","value":"for every length'
check "an update is put beside theirs" has_row \
    '134 M parameters","group":"beside bitsandbytes".*"met":true'
check "so is a load" has_row 'beside from_pretrained(), the first.*"target":10,.*"met":true'
check "and another of the process" has_row 'beside from_pretrained(), its second","group'
check "which is not judged" test \
    "$(grep 'its second","group' "$rows" | grep -c '"met"\|"target"\|"relation"')" -eq 0
check "so are kernels, of which nothing is asked" has_row \
    'with double quantization","group":"beside bitsandbytes","value":[^"]*"unit":"[^"]*"}'
for file in peer_kernels.json peer_load.json peer_update.json bnb_means.json rcp23.bin; do
    check "what was recorded is kept: $file" test -s "$scratch/out/recorded/$file"
done
check "nothing is left out but a pass that streams nothing, tests, and shapes like others" test \
    "$(grep '"kind":"skipped","name":"[^t]' "$rows" | grep -vc 'small shapes are all alike')" -eq 1
check "a conversion on the device is the processor's" has_row \
    '"name":"a conversion: every file is the processor.s","passed":1,"failed":0'
check "limits of the memory" has_row '"name":"copy within its memory, read and written"'
check "and again" has_row '"name":"copy within its memory, read and written, after"'
check "how far they are apart" count '"unit":"of before","target":0.05' 2

# Every weight in every encoding, with every number of inputs: a speed, or why there is none; of one
# weight, which stands for all, speeds alone.
shapes="8192x28672 28672x8192 8192x8192 10240x8192 57344x8192 1024x8192 4096x4096 14336x4096"
few="1 2 4 8 16 32"
many="64 128 256 512 1024 2048 4096 8192"
combinations()
{
    for shape in $shapes; do
        weight="${shape%x*} x ${shape#*x}"
        for dtype in "" ", f16"; do
            word=$([ -n "$dtype" ] && echo F16 || echo BF16)
            for what in "NF4, $weight, block 64:double" "NF4, $weight, block 128:double" \
                "FP4, $weight, block 64" "FP4, $weight, block 128" \
                "8 bits, $weight, block 256" "LLM.int8(), $weight"; do
                its=${what%:double}
                echo "quantize $its$dtype"
                echo "dequantize ${its%%,*} to $word,${its#*,}"
                [ "$its" != "$what" ] || continue
                echo "quantize $its$dtype, double"
                echo "dequantize ${its%%,*} to $word,${its#*,}, double"
            done
            for m in $few; do
                echo "LLM.int8(), $weight$dtype, m = $m"
            done
            for m in $many; do
                echo "LLM.int8(), $weight$dtype, m = $m"
                echo "$word by cuBLASLt, $weight$dtype, m = $m"
            done
            for kind in "" ", double"; do
                for block in "" ", block 128"; do
                    for m in $few; do
                        echo "NF4 product, $weight$block$dtype$kind, m = $m"
                    done
                    for m in $many; do
                        echo "NF4, $weight$block$dtype$kind, m = $m"
                    done
                done
            done
        done
    done
}
combinations | sort >"$scratch/combinations"
grep -v '"group":"beside' "$rows" |
    sed -n 's/^{"kind":"speed","name":"\([^"]*\)".*/\1/p' | sort >"$scratch/measured"
sed -n 's/^{"kind":"skipped","name":"\([^"]*\)".*/\1/p' "$rows" | sort -u >"$scratch/left"
check "combinations" test \
    "$(wc -l <"$scratch/combinations")" -eq $((8 * 2 * (16 + 6 + 16 + 4 * 14)))
check "each has a row or a reason" test -z \
    "$(sort -u "$scratch/measured" "$scratch/left" | comm -23 "$scratch/combinations" -)"
check "those of the first weight have speeds" test -z \
    "$(grep '8192 x 28672' "$scratch/combinations" | comm -23 - "$scratch/measured")"
check "no speed has the name of another" test -z "$(uniq -d "$scratch/measured")"
for name in 'all linear layers of a 70B model, a token' \
    'all linear layers of a 70B model, double, a token' 'LLM.int8() with 6 outlier.*m = 2048' \
    'quantize NF4' 'quantize NF4 with double' 'quantize FP4' 'dequantize NF4 to BF16' \
    'NF4 product.*m = 1"' 'm = 8 over m = 1' 'NF4 product.*double, m = 32' 'LLM.int8() rows' \
    'BF16 product.*m = 4"' 'int8 product.*m = 8"' 'as asked for: int8 product' \
    'BF16 by cuBLASLt' 'NF4, .*m = 64' 'LLM.int8(), .*m = 64' 'resident: load' \
    'streamed: layers streamed, a pass' 'streamed: a pass, over the prediction' 'warm: load' \
    'warm: its files, read from the page cache' 'resident: tokens generated' \
    'resident: a token, over the prediction' 'streamed: tokens generated' \
    'streamed: a token, over the prediction' 'streamed: layers streamed, a token' \
    'cpu: a checkpoint quantized' 'device: a checkpoint quantized'; do
    check "a speed: $name" has_row "\"kind\":\"speed\",\"name\":\"$name"
done
# What another library needed is put beside what is there.
printf '%s\n' '{"8192x28672":{"quantize_nf4_us":800,"nf4_m1_us":NaN,"nf4_m16_us":320},' \
    '"from_pretrained_nf4_dq_first":{"seconds":6,"GBps":1e9},' \
    '"from_pretrained_nf4_dq_second":{"seconds":2,"GBps":1e-9}}' >"$scratch/speed.json"
grep -v 'beside bitsandbytes' "$rows" | sed 's/"us":[^,]*,/"us":160,/
    /"name":"warm: load,/s/"us":160,"\(.*\),"gbps":[^,}]*/"us":5e5,"\1,"gbps":99/' \
    >"$scratch/ours"
# beside JSON: what is told of it, to be seen by is_beside.
beside()
{
    cp "$scratch/ours" "$scratch/beside"
    printf '%s\n' "$1" >"$scratch/theirs.json"
    "$gpu_check" tool "$scratch/beside" bitsandbytes "$scratch/theirs.json" >/dev/null
}
is_beside() # NUMBER [PATTERN]: so many rows, one of them this one
{
    [ "$(grep -c 'beside bitsandbytes' "$scratch/beside")" -eq "$1" ] &&
        { [ $# -eq 1 ] || grep 'beside bitsandbytes' "$scratch/beside" | grep -q -- "$2"; }
}
check "a comparison succeeds" beside "$(cat "$scratch/speed.json")"
check "five times as fast, of four" is_beside 4 \
    '28672, block 64","group":"beside bitsandbytes","value":5,.*"target":4,.*"met":true'
check "twice as fast, of no number" is_beside 4 \
    'm = 16","group":"beside bitsandbytes","value":2,"unit":"x its speed"}'
check "a load takes a twelfth of their first" is_beside 4 \
    'pretrained(), the first of a process","group":"[^"]*","value":12,.*"target":10,.*"met":true'
check "and a quarter of their second" is_beside 4 \
    'pretrained(), its second","group":"[^"]*","value":4,"unit":"x its speed"}'
beside '{"from_pretrained_nf4_dq_first":{"seconds":2}}'
check "a first load alone, which is too fast" is_beside 1 'the first.*"value":4,.*"met":false'
beside '{"from_pretrained_nf4_dq_second":{"seconds":6}}'
check "a second load alone" is_beside 1 'its second'
check "what is no number is understood" beside \
    '{"from_pretrained_nf4_dq_first":{"seconds":NaN},
    "from_pretrained_nf4_dq_second":{"GBps":1},"8192x28672":{"nf4_m8_us":Infinity}}'
check "what is no number, or not there, is left out" is_beside 0
sed -i '/"name":"warm: load,/d' "$scratch/ours"
beside "$(cat "$scratch/speed.json")"
check "without a load of ours there is none to compare" is_beside 2
check "nothing simulated is met or missed, but beside another" count '"met":' 2
check "tokens without limits and a plan" "$gpu_check" tokens "$scratch/beside" alone \
    "$scratch/out/tokens.streamed.json" >/dev/null
check "are a speed alone" test "$(grep -c '"name":"alone: ' "$scratch/beside")" -eq 1
check "a load beside no limits is refused" test "$("$gpu_check" load "$scratch/beside" warm \
    "$scratch/out/load.json" "$scratch/none" 2>/dev/null; echo $?)" = 1
check "no output is wrong" test "$(grep -c 'WRONG' "$rows")" -eq 0
check "six stages" count '"kind":"stage"' 6
check "simulated, in words" has_row '"name":"simulated"'

report=$scratch/out/report.json
page=$scratch/out/report.html
check "the report has every row" test "$(grep -c '"kind":' "$report")" -eq "$(wc -l <"$rows")"
check "the page says what it is of" grep -q '<h1>berth on Fake GPU</h1>' "$page"
check "the page says that it is simulated" grep -q 'A simulated GPU: no number here' "$page"
check "names are escaped" grep -q '&lt;b&gt; &amp; &quot;c&quot;' "$page"
check "a picture for each group, and one of time" test "$(grep -c '<svg ' "$page")" -eq 13
check "what nothing is asked of is folded" test "$(grep -c '<details><summary>' "$page")" -eq 4
check "as many bars as speeds and stages" test "$(grep -c '<rect ' "$page")" -eq \
    "$(grep -c '"kind":"speed"\|"kind":"stage"' "$rows")"
check "nothing from outside" test "$(grep -c 'http\|<script\|<link\|src=' "$page")" -eq 0
for tag in svg details summary h2; do
    check "every $tag is closed" test "$(grep -o "<$tag[ >]" "$page" | wc -l)" -eq \
        "$(grep -o "</$tag>" "$page" | wc -l)"
done

# As a GPU would have it, whose limits stay where they were, or move.
voided() # SHARE MET: whether limits have moved by that; the page of it
{
    sed "s/\"unit\":\"of before\".*/\"unit\":\"of before\",\"met\":$2}/
        s/\(\"group\":\"products\".*\"relation\":\"<=\"\)/\1,\"met\":false/
        s/\(\"group\":\"the whole\".*\"relation\":\">=\"\)/\1,\"met\":true/
        s/\(\"name\":\"drift[^,]*,\"group\":\"limits\",\"value\":\)[^,]*/\1$1/" "$rows" \
        >"$scratch/drifted" &&
        "$gpu_check" page "$scratch/drifted" "$scratch/void.json" "$scratch/void.html"
}
check "limits that stay" voided 0.04 true
check "void nothing" test "$(grep -c '"void":' "$scratch/void.json")" -eq 0
check "and the page does not say so" test "$(grep -c 'Void: ' "$scratch/void.html")" -eq 0
check "limits that move" voided 0.06 false
check "void what is a share of them" grep -q \
    '"name":"m = 8 over m = 1, .*"relation":"<=","void":true' "$scratch/void.json"
check "all of it that was judged" test "$(grep '"met":' "$scratch/void.json" |
    grep -vc '"group":"limits"\|"group":"the whole"')" -eq 0
check "loads have limits of their own" grep -q '"group":"the whole".*"met":true' \
    "$scratch/void.json"
check "and the page says so" grep -q 'class="note">Void: ' "$scratch/void.html"
check "the report stays JSON" "$gpu_check" tool "$scratch/drifted" update "$scratch/void.json"

# Failures are told: a program that is not there, a stage without time, rows that are none.
mkdir -p "$scratch/empty"
GPU_CHECK=$gpu_check T_DEVICE=fake TESTS=$scratch/empty SANITIZER='' RECORDERS=$scratch/none \
    LLAMA=none SHAPES=none MODEL=$scratch/none LAYERS=4 DEVICES=cuda PLACE=$scratch/place \
    END=$(($(date +%s) - 1)) TINY=tiny NVCC=none ARCH=90 \
    tests/gpu/stages.sh "$scratch/empty" >"$scratch/log" 2>&1
check "what has failed fails the whole" test $? -eq 1
rows=$scratch/empty/rows
check "a program that died is a failed test" count '"name":"test_simt_.*"failed":1' \
    "$number"
check "kernels that nobody launched are named" has_row \
    "no test has launched\",\"reason\":\"$("$gpu_check" kernels | LC_ALL=C sort | head -n 1)"
check "speeds have no time, and say so" has_row '"name":"speeds","reason":"no time is left"'
check "neither have tokens" count '"name":"[a-z]*: tokens","reason":"it was not over' 2
check "recorders are left out, and why" has_row '"name":"recorders","reason":"no .*none'
check "no sanitizer, and why" has_row '"name":"compute-sanitizer","reason":"it is not beside nvcc"'
check "the page is there all the same" test -s "$scratch/empty/report.html"

# The recorders alone, by other tools of this folder: nothing else is there to be done.
cat >"$scratch/no_speeds" <<SCRIPT
#!/bin/sh
[ "\$1" = speed ] || exec "$gpu_check" "\$@"
SCRIPT
chmod +x "$scratch/no_speeds"
mkdir -p "$scratch/none_works" "$scratch/too_late"
recorders() # FOLDER END VARIABLE=VALUE...
{
    tools=$1
    rows=$scratch/$1.out/rows
    mkdir -p "$scratch/$1.out"
    end=$2
    shift 2
    env PATH="$scratch/$tools:$scratch/bin:$PATH" GPU_CHECK="$scratch/no_speeds" T_DEVICE=fake \
        TESTS="$scratch/empty" SANITIZER='' RECORDERS="$scratch/recorders" BERTH=false \
        LLAMA=false SHAPES=false DEVICES=cuda PLACE="$scratch/place" END="$end" TINY=tiny \
        NVCC=nvcc ARCH=90 "$@" tests/gpu/stages.sh "$scratch/$tools.out" >"$scratch/log" 2>&1
}
cat >"$scratch/none_works/python3" <<'SCRIPT'
#!/bin/sh
[ "$1" = -c ] && echo "torch 2, bitsandbytes 0" && exit
echo "Traceback of it" >&2
echo "Error: ${1##*/} does not work" >&2
exit 1
SCRIPT
# What it says is longer than a reason, and of two bytes a letter.
mkdir -p "$scratch/accented"
cat >"$scratch/accented/python3" <<'SCRIPT'
#!/bin/sh
printf 'Error: %300s\n' '' | sed 's/ /\xc3\xa9/g; s/:/: told/' >&2
exit 1
SCRIPT
# One that looks at no GPU, and one that does not end when it is told to.
cat >"$scratch/accented/blind" <<'SCRIPT'
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
echo "========= Error: the device is not supported"
exit 1
SCRIPT
cat >"$scratch/accented/deaf" <<'SCRIPT'
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
kill -KILL $PPID
SCRIPT
chmod +x "$scratch/accented"/blind "$scratch/accented"/deaf
# Time stands still.
cat >"$scratch/too_late/date" <<'SCRIPT'
#!/bin/sh
echo 1000
SCRIPT
chmod +x "$scratch"/*/python3 "$scratch"/*/date
recorders none_works $(($(date +%s) + 100000)) MODEL="$scratch/model" LAYERS=4
for script in peer_kernels peer_load peer_update record_bnb; do
    check "$script.py does not work, and says why" has_row \
        "\"skipped\",\"name\":\"$script.py\",\"reason\":\"Error: $script.py does not work\""
done
check "nothing is put beside ours" count 'beside bitsandbytes' 0
check "and no means are compared" count '"means by torch' 0
check "without peers the recorders succeed" has_row '"name":"recorders".*"status":"done"'
recorders accented $(($(date +%s) + 100000)) MODEL="$scratch/model" LAYERS=4 \
    SANITIZER="$scratch/accented/blind"
check "a reason in other letters is told without them" has_row \
    '"skipped","name":"bitsandbytes","reason":"Error: told *"}'
check "and leaves the page" test -s "$scratch/accented.out/report.html"
check "a sanitizer that sees no GPU says why" has_row \
    '"skipped","name":"compute-sanitizer","reason":"=* Error: the device is not supported"'
rm -r "$scratch/accented.out"
recorders accented $(($(date +%s) + 100000)) MODEL="$scratch/model" LAYERS=4 \
    SANITIZER="$scratch/accented/deaf"
check "one that has to be killed leaves the others" count \
    '"skipped","name":"\(mem\|race\|init\)check: .*not over within its time' $((3 * watched + 2))
recorders too_late $((1000 + 10 + 19)) MODEL="$scratch/model" LAYERS=4
for script in peer_kernels peer_load peer_update record_bnb; do
    check "$script.py has too little time" has_row \
        "\"name\":\"$script.py\",\"reason\":\"it may take [0-9]* s, and 19 s are left"
done
recorders bin $(($(date +%s) + 100000)) GPU_LAYERS=1000000
check "no model, no load of a peer" has_row \
    '"name":"peer_load.py","reason":"there is room for [0-9]* layers'
check "but kernels of one" test -s "$scratch/bin.out/recorded/peer_kernels.json"
mkdir -p "$scratch/bare"
for tool in cmp diff; do
    printf '#!/bin/sh\nexit 127\n' >"$scratch/bare/$tool"
done
chmod +x "$scratch"/bare/*
recorders bare $(($(date +%s) + 100000)) GPU_LAYERS=1000000
check "without cmp reciprocals are those that they are" has_row \
    '"reciprocals","value":"for every mantissa'
check "and so are means" has_row '"means by torch","value":"for every length'
printf '{}' >"$scratch/none_works/bnb_means.json"
sed -i "s|cp tests/data.*json|cp \"$scratch/none_works/bnb_means.json\"|
    s|{\"8192x28672|broken &|" "$scratch/bin/python3"
recorders bin $(($(date +%s) + 100000)) GPU_LAYERS=1000000
check "other means are told" has_row '"means by torch","value":"others than.*: [0-9]* 2"'
check "what a peer prints and is no JSON fails" has_row '"name":"recorders".*"status":"failed"'

# A GPU that rings, tiles and code of sm_90a are not for has all others, which is enough.
mkdir -p "$scratch/older"
T_DEVICE=fake86 T_KERNELS=$scratch/launched "$BERTH_BUILD/tests/test_simt_few" >"$scratch/log" 2>&1
for kernel in few_bf16 ring32_f16_double wide32_bf16 wide256_f16; do
    check "$kernel is not for every GPU" grep -qx "without $kernel" "$scratch/launched"
done
for kernel in product_64_bf16 together_128_f16_double write_words; do
    check "$kernel is for this one" test "$(grep -c " $kernel\$" "$scratch/launched")" -eq 0
done
"$gpu_check" kernels | sort >"$scratch/kernels"
sed 's/^without //' "$scratch/launched" | sort | comm -23 "$scratch/kernels" - >>"$scratch/launched"
cat >"$scratch/older/any" <<SCRIPT
#!/bin/sh
[ -z "\${T_KERNELS:-}" ] || cp "$scratch/launched" "\$T_KERNELS"
echo "t: \${T_KERNELS:+1}0 passed, 0 failed, 0 skipped"
SCRIPT
chmod +x "$scratch/older/any"
for program in $programs; do
    cp "$scratch/older/any" "$scratch/older/$program"
done
recorders older $(($(date +%s) + 100000)) GPU_LAYERS=1000000 TESTS="$scratch/older" \
    SANITIZER="$scratch/sanitizer" RECORDERS="$scratch/none"
check "every kernel that is for it was launched" has_row \
    '"name":"every kernel was launched","passed":1,"failed":0'
check "the others are named" has_row \
    '"name":"kernels that are not for this GPU","reason":"few_bf16 few_bf16_double'
check "what has no test there has none that passes" count \
    '"kind":"tests","name":"\(mem\|race\|init\)check: ' 0
check "but is left out" count '"skipped","name":"\(mem\|race\|init\)check: .*not for this GPU' \
    $((3 * watched + 2))

# A program that dies when it has counted its tests, or says that it has not done well, has failed.
mkdir -p "$scratch/dead"
dead() # PROGRAM COMMAND: it counts three tests that pass, and then does that
{
    printf '#!/bin/sh\necho "t: 3 passed, 0 failed, %s skipped"\n%s\n' "${3:-0}" "$2" \
        >"$scratch/dead/$1"
    chmod +x "$scratch/dead/$1"
}
dead test_simt_few 'kill -SEGV $$'
dead test_simt_ring 'exit 1'
dead test_simt_wide 'exit 0' 1
recorders dead $(($(date +%s) + 100000)) GPU_LAYERS=1000000 TESTS="$scratch/dead" \
    RECORDERS="$scratch/none"
for program in few ring; do
    check "a program that ends badly behind its last test has failed: $program" has_row \
        "\"name\":\"test_simt_$program\",\"passed\":3,\"failed\":1,\"skipped\":0"
done
check "and how" has_row '"skipped","name":"test_simt_few","reason":"ended with status 139: '
check "one that ends well has not" has_row \
    '"name":"test_simt_wide","passed":3,"failed":0,"skipped":1'

# What is not built has a report, too: `make` fails, or is not over within half of two seconds.
mkdir -p "$scratch/unbuilt"
cat >"$scratch/unbuilt/cc" <<'SCRIPT'
#!/bin/sh
# -O1 -o PROGRAM SOURCE: a machine that has a GPU
printf '#!/bin/sh\necho 90\n' >"$3"
chmod +x "$3"
SCRIPT
cat >"$scratch/unbuilt/fails" <<'SCRIPT'
#!/bin/sh
case $* in *where) echo /nowhere && exit ;; esac
echo "kernel.cu(3): error: identifier <b> is \"undefined\""
exit 2
SCRIPT
printf '#!/bin/sh\nexec sleep 60\n' >"$scratch/unbuilt/sleeps"
chmod +x "$scratch"/unbuilt/*
unbuilt() # MAKE VARIABLE=VALUE...
{
    rows=$scratch/unbuilt/out/rows
    make=$scratch/unbuilt/$1
    shift
    env -u DEPS CC="$scratch/unbuilt/cc" NVCC="$scratch/bin/nvcc" GPU_SECONDS=2 MAKE="$make" "$@" \
        tests/gpu/check.sh "$scratch/unbuilt/out" >"$scratch/log" 2>&1
}
unbuilt fails
check "a build that fails fails the whole" test $? -eq 1
check "and has a report that says so" has_row \
    '"name":"all tests and speeds","reason":"the build for sm_90 has failed"'
check "of a stage that has failed" has_row '"kind":"stage","name":"build",.*"status":"failed"'
check "with what the compiler said" grep -q 'identifier &lt;b&gt; is "undefined"' \
    "$scratch/unbuilt/out/report.html"
check "which is told, too" grep -q 'kernel.cu(3): error' "$scratch/log"
check "its report is JSON" "$gpu_check" page "$rows" "$scratch/r" "$scratch/p"
check "of the same rows" cmp -s "$scratch/r" "$scratch/unbuilt/out/report.json"
unbuilt sleeps
check "so has one that takes too long" has_row \
    '"name":"all tests and speeds","reason":"the build for sm_90 was not over within 1 s"'
unbuilt fails CC=false
check "so has a compiler that makes no programs" has_row \
    '"reason":"the program that looks for a GPU was not built"'
unbuilt fails DEPS="$scratch/none"
check "and libraries without sources" has_row '"reason":"the libraries of DEPS were not built"'

echo '{"kind":' >"$scratch/broken"
check "rows that are none are refused" test "$("$gpu_check" page "$scratch/broken" \
    "$scratch/r" "$scratch/p" 2>/dev/null; echo $?)" = 1
end

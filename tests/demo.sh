#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make demo`: writes a small sharded checkpoint, looks at it, notes its digests, damages copies of
# it in three ways, plans it for three machines, loads it on two simulated devices and computes with
# it, quantizes it, is killed while doing so and goes on, turns it back, and trains adapters. Shows
# what berth says; ends green only if each verdict was the right one. Everything lies in build/demo
# and may be played with afterwards.
set -u
cd "$(dirname "$0")/.." || exit 1
BERTH=$(readlink -f "${BERTH:-build/berth}")
BERTH_BUILD=${BERTH_BUILD:-$(dirname "$BERTH")}
at=build/demo
# Linear layers that are worth quantizing; tests/readme.sh takes its model's options from this line.
model_options="--hidden 512 --inner 1408 --vocab 2048 --heads 8 --kv-heads 4"
quantize_options="--type nf4 --double-quant --max-shard-size 1MB --min-coverage 80%"
wrong=0 verdicts=0
bold='' green='' red='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') green=$(printf '\033[1;32m') red=$(printf '\033[1;31m')
    plain=$(printf '\033[0m')
fi

say()
{
    printf '\n%s\n' "$bold$*$plain"
}

# judge EXPECTED CODE: one verdict
judge()
{
    verdicts=$((verdicts + 1))
    if [ "$2" -eq "$1" ]; then
        echo "${green}exit code $2, as it should be$plain"
    else
        echo "${red}exit code $2, but it should be $1$plain"
        wrong=$((wrong + 1))
    fi
}

# run EXPECTED ARGUMENT...: shows the command, runs it, compares its exit code
run()
{
    expected=$1
    shift
    echo "\$ berth $*"
    "$BERTH" "$@"
    judge "$expected" $?
}

# same WHAT COMMAND...: shows a comparison and makes it
same()
{
    what=$1
    shift
    echo "\$ $*"
    "$@"
    code=$?
    [ $code -ne 0 ] || echo "$what"
    judge 0 $code
}

# kill_after_a_file OUT ARGUMENT...: kills berth as soon as its journal lists a finished file. A
# machine may be done before that is seen: then once more.
kill_after_a_file()
{
    out=$1
    shift
    tries=0 code=0
    while [ $code -ne 137 ] && [ $tries -lt 20 ]; do
        rm -rf "$out" && tries=$((tries + 1))
        "$BERTH" quantize "$@" &
        pid=$!
        until grep -q '^{"name"' "$out/.berth-journal.json" 2>/dev/null; do
            kill -0 $pid 2>/dev/null || break
        done
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
    done
    echo "\$ berth quantize $* & # until the first shard is there; then kill -9"
    echo "shards in the journal: $(grep -c '^{"name"' "$out/.berth-journal.json")"
    judge 137 $code
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

# decode OUT OPTION...: a prompt of three ids and six more, by the reference decoder
decode()
{
    out=$1
    shift
    echo "\$ berth-llama $at/model --tokens 1,2,3 --generate 6 $*"
    "$BERTH_BUILD/berth-llama" $at/model --tokens 1,2,3 --generate 6 "$@" >"$out"
    judge 0 $?
    printf 'ids: ' && cat "$out" && echo
}

# When something was read, copied, waited for: a row each, from the file of --trace, in which
# there is one event a line.
draw()
{
    awk -v columns=60 '
        function value(key) {
            if (!match($0, "\"" key "\":\"?[^,\"}]*"))
                return ""
            text = substr($0, RSTART, RLENGTH)
            sub(/^"[a-z]+":"?/, "", text)
            return text
        }
        /"ph":"M"/ && /"process_name"/ {
            number = value("pid")
            match($0, /"args":[{]"name":"[^"]*/)
            process[number] = substr($0, RSTART + 16, RLENGTH - 16)
        }
        /"ph":"X"/ {
            n++
            row[n] = value("cat") ", " process[value("pid")]
            begin[n] = value("ts") + 0
            end[n] = begin[n] + value("dur")
            if (n == 1 || begin[n] < first) first = begin[n]
            if (end[n] > last) last = end[n]
        }
        END {
            for (i = 1; i <= n; i++) {
                if (!(row[i] in busy)) order[++rows] = row[i]
                busy[row[i]] += end[i] - begin[i]
                from = int((begin[i] - first) * columns / (last - first + 1))
                to = int((end[i] - first) * columns / (last - first + 1))
                for (c = from; c <= to; c++) mark[row[i], c] = 1
            }
            for (r = 1; r <= rows; r++) {
                line = ""
                for (c = 0; c < columns; c++)
                    line = line ((order[r], c) in mark ? "#" : ".")
                printf "%-28s %s %8.1f ms\n", order[r], line, busy[order[r]] / 1000
            }
            printf "%-28s from 0 to %.1f ms; right: summed over threads and lanes\n", "",
                (last - first) / 1000
        }' "$1"
}

# A run's loss, step by step: a column is a share of the steps, a row a share of their logarithms.
draw_loss()
{
    awk -v columns=60 -v rows=9 '
        function row(loss) { return int((log(loss) - low) / (high - low) * (rows - 1) + 0.5) }
        { n++; small[n] = $2; full[n] = $3
          for (i = 2; i <= 3; i++) {
              if (n == 1 && i == 2 || log($i) > high) high = log($i)
              if (n == 1 && i == 2 || log($i) < low) low = log($i)
          } }
        END {
            for (i = 1; i <= n; i++) {
                c = int((i - 1) * columns / n)
                mark[row(full[i]), c] = "-"
                mark[row(small[i]), c] = row(small[i]) == row(full[i]) ? "#" : "8"
            }
            for (r = rows - 1; r >= 0; r--) {
                line = ""
                for (c = 0; c < columns; c++)
                    line = line ((r, c) in mark ? mark[r, c] : ".")
                printf "%8.3f  %s\n", exp(low + (high - low) * r / (rows - 1)), line
            }
            printf "%8s  0 to %d steps; #: both, 8: states of 8 bits, -: of 32\n", "", n - 1
            printf "%8s  from %.3f to %.4f with 8 bits, to %.4f with 32\n", "", small[1],
                small[n], full[n]
        }' "$1"
}

# is_learnt FILE: a hundredth of the loss is left at most, and 8 bits are 2 % from 32
is_learnt()
{
    awk '{ if (NR == 1) first = $2; small = $2; full = $3 }
        END { exit !(NR == 201 && small < first / 100 && small < full * 1.02) }' "$1"
}

rm -rf $at && mkdir -p $at || exit 1
say "A small checkpoint: a Llama of four layers in three shards, in $at/model"
# shellcheck disable=SC2086 # a list of words
"$BERTH_BUILD/tests/make_model" $at/model $model_options || exit 1
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

# The damaged copies have served.
rm -rf $at/flipped $at/cut $at/missing

say "Where would it go? On a machine with room for all of it,"
run 0 plan $at/model --max-memory 0=1GiB,cpu=4GiB -o $at/roomy.plan
run 0 map $at/roomy.plan
say "on one with two small GPUs,"
run 0 plan $at/model --max-memory 0=16MiB,1=16MiB,cpu=64MiB --context 64 --reserve-percent 0 \
    -o $at/two.plan
run 0 map $at/two.plan
say "and on one where layers are streamed from host memory and the disk."
run 0 plan $at/model --max-memory 0=18MiB,cpu=7MiB,disk=inf --context 64 --reserve-percent 0 \
    -o $at/small.plan
run 0 map $at/small.plan
run 0 plan $at/model --check $at/small.plan --max-memory 0=18MiB,cpu=7MiB,disk=inf

devices="sim:16MiB,h2d=1GB/s;sim:16MiB,h2d=1GB/s"
say "Loaded on two simulated GPUs, two of the layers left on the disk; every byte compared."
run 0 plan $at/model --max-memory 0=15MiB,1=15MiB,cpu=4MiB,disk=inf --pin model.layers.1=disk \
    --pin model.layers.2=disk --context 64 --reserve-percent 0 -o $at/sim.plan
run 0 load $at/model --plan $at/sim.plan --devices "$devices" --check --trace $at/load.trace
echo "Where the time of the load went:"
draw $at/load.trace
say "A few tokens, its layers coming from the disk when they are needed; then all in memory."
decode $at/ids.streamed --plan $at/sim.plan --devices "$devices"
decode $at/ids.resident --max-memory cpu=1GiB
same "the ids are the same" cmp $at/ids.streamed $at/ids.resident

say "One GPU of 8 MiB is too small, and berth says by how much."
run 6 plan $at/model --max-memory 0=8MiB --context 64 --reserve-percent 0

say "Four bits a weight, in the files that transformers and bitsandbytes read as their own."
# shellcheck disable=SC2086
run 0 quantize $at/model $at/nf4 $quantize_options
run 0 verify $at/nf4 --digest

say "The same, killed on the way. What was finished stays, and is not done again."
# shellcheck disable=SC2086
kill_after_a_file $at/resumed $at/model $at/resumed $quantize_options -q
# shellcheck disable=SC2086
run 0 quantize $at/model $at/resumed $quantize_options --resume >$at/output
sed -n '1p; /^ok/,$p' $at/output && rm $at/output
same "every file is the same" diff -r $at/nf4 $at/resumed

say "And back: plain weights for whoever wants them."
run 0 dequantize $at/nf4 $at/plain
same "config.json is what it was" cmp $at/model/config.json $at/plain/config.json

say "What has it cost? Here: is there 20 dB of signal to noise in every weight?"
run 0 diff $at/model $at/plain --min-snr 20

say "The same as a gate that 4 bits cannot pass: 40 dB."
run 11 diff $at/model $at/plain --min-snr 40 -q

say "Adapters on a base of 4 bits learn a line of a poem; AdamW's states of 8 bits are paged."
"$BERTH_BUILD/tests/make_qlora" $at/qlora || exit 1
draw_loss $at/qlora/loss.txt
same "it knows the line, and 8 bits did what 32 do" is_learnt $at/qlora/loss.txt
run 0 inspect $at/qlora/adapter --depth 2

echo
if [ $wrong -gt 0 ]; then
    echo "${red}demo: $wrong of $verdicts verdicts were not the expected ones$plain"
else
    echo "${green}demo: all $verdicts verdicts were the expected ones; the files are in $at$plain"
fi
echo "$((verdicts - wrong)) passed, $wrong failed, 0 skipped"
[ $wrong -eq 0 ]

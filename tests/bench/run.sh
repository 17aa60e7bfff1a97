#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench: every row of the benchmark, into build/bench.json and, for people, to stdout.
# What it ran on is in build/bench-machine.json.
#
# Limits and peers are measured in the same run. BENCH_DIR names a folder on the disk to be
# measured, default /var/tmp; what is written there (6 GB) is removed at the end.
# BENCH_ONLY=open, plan, verify, kernels, train, convert, load or cuda leaves the other parts out.
# NVCC names the CUDA compiler; ARCHS what it compiles kernels for (sm_90, that limits are for).
set -eu
berth=${BERTH:?run this by make bench}
programs=$BERTH_BUILD/bench
place=${BENCH_DIR:-/var/tmp}
commit=0123456789abcdef0123456789abcdef01234567
data_mib=4096

# What the environment says of berth or of a hub must not change what is measured.
unset BERTH_IO BERTH_LOG BERTH_STAGING HF_HOME HF_HUB_CACHE 2>/dev/null || :

work=$(mktemp -d "$place/berth-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
rows=$work/rows
: >"$rows"

skip()
{
    printf '%-44s skipped: %s\n' "$1" "$2"
    printf '{"name":"%s","skipped":"%s"}\n' "$1" "$2" >>"$rows"
}

has_space() # MIB
{
    [ "$(df -Pk "$work" | awk 'NR == 2 { print int($4 / 1024) }')" -ge "$1" ]
}

bench_open()
{
    for shape in llama70b deepseek many:250000 many:500000 many:1000000 \
        X01 X02 R1 R2 R3 R4 R6 R7; do
        "$programs/make_shapes" "$shape" "$work/$(echo "$shape" | tr -d :)"
    done
    if python=$(tests/interop/venv.sh 2>"$work/venv.log"); then
        "$programs/bench_open" -o "$rows" -p "$python" "$work"
    else
        "$programs/bench_open" -o "$rows" -n "no Python environment with safetensors" "$work"
    fi
}

bench_verify()
{
    cache=$work/hub
    repository=$cache/models--bench--blob
    "$programs/make_shapes" "random:$data_mib" "$work/random"
    # One shard as a hub holds it: a blob named by its SHA-256, a link to it.
    blob=$(sha256sum "$work/random/model-00001-of-000004.safetensors" | cut -d' ' -f1)
    mkdir -p "$repository/blobs" "$repository/refs" "$repository/snapshots/$commit"
    ln "$work/random/model-00001-of-000004.safetensors" "$repository/blobs/$blob"
    ln -s "../../blobs/$blob" "$repository/snapshots/$commit/model.safetensors"
    printf %s "$commit" >"$repository/refs/main"
    "$programs/bench_verify" -o "$rows" "$berth" "$programs" "$work/random" "$cache"
}

bench_plan()
{
    for shape in llama70b deepseek; do
        [ -d "$work/$shape" ] || "$programs/make_shapes" "$shape" "$work/$shape"
    done
    seconds=0
    if [ -x tests/bench/peer_plan.sh ]; then
        seconds=$(tests/bench/peer_plan.sh 2>"$work/peer.log") || seconds=0
    fi
    "$programs/bench_plan" -o "$rows" -p "$seconds" "$berth" "$work"
}

# What bitsandbytes needs for the same, when it is there: seconds of its own.
bench_kernels()
{
    if [ -x tests/bench/peer_bitsandbytes.sh ] \
        && tests/bench/peer_bitsandbytes.sh >"$work/peer" 2>"$work/peer.log"; then
        "$programs/bench_kernels" -o "$rows" -p "$work/peer" "$programs"
    else
        "$programs/bench_kernels" -o "$rows" "$programs"
    fi
}

bench_train()
{
    rate=0
    if [ -x tests/bench/peer_train.sh ]; then
        rate=$(tests/bench/peer_train.sh 2>"$work/peer.log") || rate=0
    fi
    "$programs/bench_train" -o "$rows" -p "$rate" "$programs"
}

# What transformers takes to load the model as NF4; 0: it is not there.
transformers_seconds()
{
    seconds=$(tests/bench/peer_transformers.sh "$work/llama1b" 2>"$work/peer.log") || seconds=0
}

# Once as the disk allows it, once out of the page cache.
bench_convert()
{
    "$programs/make_shapes" llama1b "$work/llama1b"
    transformers_seconds
    llama=
    if tests/bench/peer_llama.sh quantize "$work/llama1b" "$work" >"$work/llama" \
        2>"$work/llama.log"; then
        llama=$work/llama
    fi
    rm -f "$work/f16.gguf" "$work/q4_0.gguf"
    mpirun=$(command -v mpirun || :)
    "$programs/bench_convert" -o "$rows" -p "$seconds" ${llama:+-l "$llama"} \
        ${mpirun:+-m "$mpirun"} "$berth" "$programs" "$work/llama1b" "$work/converted"
}

# The same model into memory, and through slots; sparse files where only the loader counts.
bench_load()
{
    [ -d "$work/llama1b" ] || "$programs/make_shapes" llama1b "$work/llama1b"
    "$programs/make_shapes" pieces:20000 "$work/pieces"
    "$programs/make_shapes" pieces:1 "$work/piece"
    [ -n "${seconds:-}" ] || transformers_seconds
    decoded=0
    if tests/bench/peer_llama.sh decode "$work/llama1b" "$work" >"$work/llama" \
        2>"$work/llama.log"; then
        decoded=$(tr ',' '\n' <"$work/llama" | awk -F: '/"tokens_per_second"/ { tokens = $2 }
            /"token_bytes"/ { bytes = $2 + 0 } END { printf "%.0f", tokens * bytes }')
    fi
    rm -f "$work/f16.gguf" "$work/q4_0.gguf"
    "$programs/bench_load" -o "$rows" -p "${seconds:-0}" -d "${decoded:-0}" "$berth" \
        "$(dirname "$berth")/berth-llama" "$programs" "$work/llama1b" \
        "$work/llama1b-nf4" "$work/pieces" "$work/piece"
}

# What kernels for GPUs are as machine code, which needs no GPU: instructions of an element and
# registers, in the place of a speed, of kernels that are held to some. What tests/cuda.sh refuses
# fails here, too.
bench_cuda()
{
    name="instructions per element on sm_90"
    judged=0
    ARCHS=${ARCHS:-sm_90} tests/cuda.sh "$BERTH_BUILD/cuda" >"$work/cuda" 2>&1 || judged=$?
    if [ "$judged" -ne 0 ] && [ "$judged" -ne 1 ]; then
        skip "$name" "$(sed -n 's/^skipped: //p' "$work/cuda" | head -n 1 | grep . ||
            echo "tests/cuda.sh ended with status $judged")"
        return 0
    fi
    grep -v '^note: \|^t: ' "$work/cuda" || :
    if ! grep -q '^note: ' "$work/cuda"; then
        skip "$name" "ARCHS leaves sm_90 out"
        return "$judged"
    fi
    awk -v rows="$rows" '
        function report(name, unit, value, most, is_met) {
            is_met = value + 0 <= most + 0
            printf "%-58s %8s  to be <= %s: %s\n", name, value, most, is_met ? "met" : "MISSED"
            printf "{\"name\":\"%s\",\"unit\":\"%s\",\"value\":%s,\"limit\":null," \
                "\"limit_spread\":null,\"peer\":null,\"ratio\":null,\"target\":%s," \
                "\"target_of\":\"value\",\"better\":\"lower\",\"met\":%s}\n", name, unit, value,
                most, is_met ? "true" : "false" >>rows
        }
        $5 != "-" {
            report($1 ", sm_90: instructions", "per element", $4, $5)
            report($1 ", sm_90: registers", "registers", $2, $3)
        }' "$BERTH_BUILD/cuda/table"
    return "$judged"
}

status=0
if [ "${BENCH_ONLY:-cuda}" = cuda ]; then
    bench_cuda || status=1
fi
if [ "${BENCH_ONLY:-convert}" = convert ]; then
    if ! has_space 6144; then
        skip "quantize 2.2 GB, cold" "less than 6 GB free in $place"
    elif [ "$(stat -f -c %T "$work")" = tmpfs ]; then
        skip "quantize 2.2 GB, cold" "$place lies in memory: name a disk with BENCH_DIR"
    else
        bench_convert || status=1
    fi
fi
if [ "${BENCH_ONLY:-load}" = load ]; then
    if ! has_space 6144; then
        skip "load 2.2 GB, cold" "less than 6 GB free in $place"
    elif [ "$(stat -f -c %T "$work")" = tmpfs ]; then
        skip "load 2.2 GB, cold" "$place lies in memory: name a disk with BENCH_DIR"
    else
        bench_load || status=1
    fi
fi
rm -rf "$work/llama1b" "$work/llama1b-nf4" "$work/pieces" "$work/piece"
if [ "${BENCH_ONLY:-kernels}" = kernels ]; then
    bench_kernels || status=1
fi
if [ "${BENCH_ONLY:-train}" = train ]; then
    bench_train || status=1
fi
if [ "${BENCH_ONLY:-open}" = open ]; then
    if has_space 2048; then
        bench_open || status=1
    else
        skip "open and list" "less than 2 GB free in $place"
    fi
fi
if [ "${BENCH_ONLY:-plan}" = plan ]; then
    if has_space 1024; then
        bench_plan || status=1
    else
        skip "plan" "less than 1 GB free in $place"
    fi
fi
if [ "${BENCH_ONLY:-verify}" = verify ]; then
    if ! has_space $((data_mib + 1024)); then
        skip "verify --digest, cold" "less than 5 GB free in $place"
    elif [ "$(stat -f -c %T "$work")" = tmpfs ]; then
        skip "verify --digest, cold" "$place lies in memory: name a disk with BENCH_DIR"
    else
        bench_verify || status=1
    fi
fi

{
    echo '['
    sed '$!s/$/,/' "$rows"
    echo ']'
} >build/bench.json
"$berth" devices --json >build/bench-machine.json
echo "build/bench.json: $(grep -c '"met":true' "$rows" || :) met," \
    "$(grep -c '"met":false' "$rows" || :) missed, $(grep -c '"skipped":' "$rows" || :) skipped"
exit $status

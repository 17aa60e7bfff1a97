#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make gpu-check: builds for the GPU that is there, tests it and measures it, in eight minutes, and
# writes one report; one worth keeping goes to tests/data/gpu/ under the name of the GPU. Where the
# build fails, or takes more than half of the time, the report says so. Without a GPU it builds what
# can be built, says so and ends with 77.
#
#   tests/gpu/check.sh FOLDER    from the root of the tree; the report goes to FOLDER
#
# NVCC         the CUDA compiler
# ARCH         the architecture, "90"; without it the first GPU's, as its driver says
# DEPS         a folder with the sources of cJSON, zlib and liburing, where these are not installed
# RECORDERS    the folder of record_rcp.cu and record_bnb.py
# PLACE        where a model of 9 GB is written, and removed again (/var/tmp)
# GPU_LAYERS   its layers (16), 0.44 GB each
# GPU_SECONDS  for all of it (480)
set -u
export LC_ALL=C
folder=$1
begun=$(date +%s)
: "${MAKE:=make}" "${CC:=cc}" "${GPU_SECONDS:=480}" "${PLACE:=/var/tmp}"
: "${RECORDERS:=../shared/gpu}"
NVCC=$(command -v "${NVCC:-nvcc}" || command -v /usr/local/cuda/bin/nvcc) || {
    echo "no nvcc: skipped (the CUDA toolkit is what this needs)"
    exit 77
}
rm -rf "$folder"
mkdir -p "$folder" || exit 1
here=$(cd "$folder" && pwd) || exit 1
rows=$folder/rows

stage() # NAME BEGUN STATUS
{
    printf '{"kind":"stage","name":"%s","seconds":%d,"status":"%s"}\n' "$1" \
        $(($(date +%s) - $2)) "$3" >>"$rows"
}

# The report of what has not come to its stages: the program that makes pages is not there.
fail() # REASON LOG
{
    stage build "$building" failed
    printf '{"kind":"skipped","name":"all tests and speeds","reason":"%s"}\n' "$1" >>"$rows"
    {
        echo '{"format":"berth-gpu-check","version":1,"rows":['
        sed '$!s/$/,/' "$rows"
        echo ']}'
    } >"$folder/report.json"
    {
        printf '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        printf '<title>berth on a GPU</title></head>\n<body><h1>berth on a GPU</h1>\n'
        printf '<p>Nothing was tested or measured: %s.</p>\n<pre>\n' "$1"
        tail -n 100 "$2" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'
        printf '</pre></body></html>\n'
    } >"$folder/report.html"
    tail -n 100 "$2"
    echo "$1: $folder/report.json and report.html say so"
    exit 1
}

# What GPU; there may be none.
building=$begun
# shellcheck disable=SC2086 # several words
$CC -O1 -o "$folder/probe" tests/gpu/probe.c -ldl >"$folder/probe.log" 2>&1 ||
    fail "the program that looks for a GPU was not built" "$folder/probe.log"
found=$("$folder/probe") && has_gpu=1 || has_gpu=0
if [ -z "${ARCH:-}" ]; then
    ARCH=90
    [ $has_gpu -eq 0 ] || ARCH=$(printf '%s\n' "$found" | head -n 1)
fi

if [ -n "${DEPS:-}" ]; then
    tests/gpu/deps.sh "$DEPS" "$here/deps" >"$folder/deps.log" 2>&1 ||
        fail "the libraries of DEPS were not built" "$folder/deps.log"
    PKG_CONFIG=$here/deps/pkg-config
    export PKG_CONFIG
    URING=$([ -e "$folder/deps/liburing.pc" ] && echo 1 || echo 0)
    # Not ours to warn of.
    CPPFLAGS="-isystem $here/deps/include"
    export CPPFLAGS URING LIBDEFLATE=0
fi
building=$(date +%s)
# Half of the time, where that is measured.
most=$([ $has_gpu -eq 0 ] && echo 3600 || echo $((GPU_SECONDS / 2)))
make_it()
{
    timeout -k 5 "$most" "$MAKE" -s CUDA=1 ARCH="$ARCH" NVCC="$NVCC" CC="$CC" \
        ${PKG_CONFIG:+PKG_CONFIG="$PKG_CONFIG"} ${URING:+URING="$URING"} \
        ${LIBDEFLATE:+LIBDEFLATE="$LIBDEFLATE"} ${CPPFLAGS:+CPPFLAGS="$CPPFLAGS"} "$@"
}
echo "building for sm_$ARCH"
status=0
build=$(make_it where 2>"$folder/build.log") || status=$?
[ $status -ne 0 ] || make_it gpu-programs >>"$folder/build.log" 2>&1 || status=$?
case $status in
0) cat "$folder/build.log" ;;
124 | 137) fail "the build for sm_$ARCH was not over within $most s" "$folder/build.log" ;;
*) fail "the build for sm_$ARCH has failed" "$folder/build.log" ;;
esac
stage build "$building" "done"
if [ $has_gpu -eq 0 ]; then
    echo "no GPU: skipped ($found; built for sm_$ARCH)"
    exit 77
fi
if ! why=$("$build/gpu/gpu_check" there); then
    echo "no GPU: skipped ($why; built for sm_$ARCH)"
    exit 77
fi

printf '{"kind":"fact","name":"built by","value":"%s, %s"}\n' \
    "$("$NVCC" --version | sed -n 's/.*\(release [0-9.]*\).*/nvcc \1/p')" \
    "$($CC --version | head -n 1 | tr -d '"\\')" >>"$rows"
# Where the toolkit lies, and its libraries: cuBLASLt is opened by name.
toolkit=$(dirname "$(dirname "$(readlink -f "$NVCC")")")
LD_LIBRARY_PATH=$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
SANITIZER=$(command -v "$toolkit/bin/compute-sanitizer" || command -v compute-sanitizer)
export GPU_CHECK="$build/gpu/gpu_check" BERTH="$build/berth" LLAMA="$build/berth-llama" \
    TESTS="$build/tests" \
    SHAPES="$build/bench/make_shapes" T_DEVICE=cuda DEVICES=cuda NVCC ARCH RECORDERS PLACE \
    SANITIZER END=$((begun + GPU_SECONDS))
exec tests/gpu/stages.sh "$folder"

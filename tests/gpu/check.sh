#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make gpu-check: builds for the GPU that is there, tests it and measures it, in eight minutes, and
# writes one report; one worth keeping goes to tests/data/gpu/ under the name of the GPU. Without a
# GPU it builds what can be built, says so and ends with 77.
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
rows=$folder/rows

stage() # NAME BEGUN STATUS
{
    printf '{"kind":"stage","name":"%s","seconds":%d,"status":"%s"}\n' "$1" \
        $(($(date +%s) - $2)) "$3" >>"$rows"
}

# What GPU; there may be none.
# shellcheck disable=SC2086 # several words
$CC -O1 -o "$folder/probe" tests/gpu/probe.c -ldl || exit 1
found=$("$folder/probe") && has_gpu=1 || has_gpu=0
if [ -z "${ARCH:-}" ]; then
    ARCH=90
    [ $has_gpu -eq 0 ] || ARCH=$(printf '%s\n' "$found" | head -n 1)
fi

if [ -n "${DEPS:-}" ]; then
    tests/gpu/deps.sh "$DEPS" "$PWD/$folder/deps" || exit 1
    PKG_CONFIG=$PWD/$folder/deps/pkg-config
    export PKG_CONFIG
    URING=$([ -e "$folder/deps/liburing.pc" ] && echo 1 || echo 0)
    # Not ours to warn of.
    CPPFLAGS="-isystem $PWD/$folder/deps/include"
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
if ! build=$(make_it where) || ! make_it gpu-programs; then
    echo "the build for sm_$ARCH has failed, or took longer than $most s"
    exit 1
fi
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

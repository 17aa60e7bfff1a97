#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make check-arm`: builds berth for AArch64 and runs there, in an emulator, the tests of the
# arithmetic and the tool, whose files must be those of this machine's. Bits, not speeds: an
# emulator says nothing about those. Skipped, with the reason, where its packages cannot be had.
# Run by make, which built the tool of this machine (BERTH, BERTH_BUILD); `check.sh build` only
# builds.
set -u
cd "$(dirname "$0")/../.." || exit 1
# A make of our own, with settings that are not for this machine.
unset MAKEFLAGS MAKELEVEL MFLAGS PKG_CONFIG_LIBDIR
export CC="${ARM_CC:-aarch64-linux-gnu-gcc}" CFLAGS='-O2 -g1' LDFLAGS='' SAN='' CUDA=0
tests=$(tests/programs.sh arm)
# A processor without products of four 8-bit numbers at once; the emulator's own has all there is.
plain=cortex-a72
plain_tests=$(tests/programs.sh arm-plain)

skip()
{
    echo "skipped: $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

# emulated PROGRAM PROCESSOR WRAPPER: what runs like a program of this machine
emulated()
{
    printf '#!/bin/sh\nexec qemu-aarch64 -cpu %s %s "$@"\n' "$2" "'$1'" >"$3" && chmod +x "$3"
}

[ "$(uname -m)" != aarch64 ] || skip "this machine is AArch64 itself: make check tests it"
sh tests/deps.sh install || skip "no compiler, libraries or emulator for AArch64"
build=$(make -s CC="$CC" where) || exit 1
programs=
for name in $tests; do
    programs="$programs $build/tests/test_$name"
done
# shellcheck disable=SC2086 # a list of words
make -s CC="$CC" "$build/berth" $programs || exit 1
[ "${1:-}" != build ] || exit 0

wrappers=$PWD/$build/emulated
rm -rf "$wrappers" && mkdir -p "$wrappers" || exit 1
emulated "$PWD/$build/berth" max "$wrappers/berth" || exit 1
emulated "$PWD/$build/berth" $plain "$wrappers/berth_plain" || exit 1
programs=
for name in $tests; do
    emulated "$PWD/$build/tests/test_$name" max "$wrappers/test_$name" || exit 1
    programs="$programs $wrappers/test_$name"
done
for name in $plain_tests; do
    emulated "$PWD/$build/tests/test_$name" $plain "$wrappers/test_${name}_plain" || exit 1
    programs="$programs $wrappers/test_${name}_plain"
done
export T_EMULATED=1
export ARM_BERTH="$wrappers/berth" ARM_BERTH_PLAIN="$wrappers/berth_plain"
# shellcheck disable=SC2086 # a list of words
tests/run.sh $programs tests/arm/tool.sh

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tests/gpu/deps.sh makes of sources: of some that are a function a file, so that nothing is
# fetched.
set -u
export LC_ALL=C
# shellcheck source=tests/t.sh
. tests/t.sh
sources=$scratch/sources out=$scratch/out
zlib_parts="adler32 crc32 deflate inffast inflate inftrees trees zutil"
said=$scratch/said
: >"$said"

# ------------------------------------------------------------------------------ what is built of

# add_file PATH: a function with the file's name; its lines before that are the standard input's.
add_file()
{
    mkdir -p "$(dirname "$1")"
    name=$(basename "$1" .c)
    {
        cat
        echo "int fake_$name(void); int fake_$name(void) { return 0; }"
    } >"$1"
}

make_cjson()
{
    mkdir -p "$sources/cJSON-1"
    echo "int fake_cJSON(void);" >"$sources/cJSON-1/cJSON.h"
    echo '#include "cJSON.h"' | add_file "$sources/cJSON-1/cJSON.c"
}

make_zlib()
{
    mkdir -p "$sources/vendor/zlib-1/build"
    echo "int fake_inflate(void);" >"$sources/vendor/zlib-1/zlib.h"
    echo "#define FAKE_ZCONF 1" >"$sources/vendor/zlib-1/zconf.h"
    # What its own build leaves behind is not what is looked for.
    echo "#error another build's" >"$sources/vendor/zlib-1/build/zconf.h"
    for part in $zlib_parts gzlib; do
        printf '%s\n' '#include <zconf.h>' '#if !HAVE_UNISTD_H || !_LARGEFILE64_SOURCE' \
            '#error flags' '#endif' |
            add_file "$sources/vendor/zlib-1/$part.c"
    done
}

# make_uring PART...: these besides those that there always are
make_uring()
{
    mkdir -p "$sources/liburing-2/src/include/liburing"
    echo "int fake_queue(void);" >"$sources/liburing-2/src/include/liburing.h"
    echo "#define FAKE_BARRIER 1" >"$sources/liburing-2/src/include/liburing/barrier.h"
    for part in setup queue register syscall "$@"; do
        printf '%s\n' '#include <liburing/barrier.h>' \
            '#if !FAKE_HOST || !LIBURING_INTERNAL' '#error flags' '#endif' |
            add_file "$sources/liburing-2/src/$part.c"
    done
    cat >"$sources/liburing-2/configure" <<'SCRIPT'
#!/bin/sh
[ "$1" = "--cc=$CC" ] && echo "#define FAKE_HOST 1" >config-host.h
SCRIPT
    chmod +x "$sources/liburing-2/configure"
}

# ------------------------------------------------------------------------------- what comes of it

# The script ends with this status.
run_deps() # STATUS
{
    rm -rf "$out"
    tests/gpu/deps.sh "$sources" "$out" >"$scratch/said" 2>&1
    [ $? -eq "$1" ]
}
has_parts() # LIBRARY PART...: these and no others
{
    library=$1
    shift
    [ "$(ar t "$out/lib/lib$library.a" | sort | tr '\n' ' ')" = "$(printf '%s.o\n' "$@" | sort |
        tr '\n' ' ')" ]
}
has_headers()
{
    for header in cjson/cJSON.h cJSON.h zlib.h zconf.h "$@"; do
        [ -e "$out/include/$header" ] || return 1
    done
}
knows() # PACKAGE
{
    "$out/pkg-config" --exists "$1"
}
says() # WORDS OPTION PACKAGE...
{
    words=$1
    shift
    [ "$("$out/pkg-config" "$@" 2>&1)" = "$words" ]
}
told() # WORDS
{
    grep -qF -- "$1" "$scratch/said"
}
is_quiet()
{
    [ ! -s "$scratch/said" ]
}
# A program of what pkg-config says, as the Makefile asks it.
links()
{
    cat >"$scratch/program.c" <<'CODE'
#include <cjson/cJSON.h>
#include <liburing.h>
#include <zlib.h>
int main(void) { return fake_cJSON() + fake_inflate() + fake_queue(); }
CODE
    # shellcheck disable=SC2046 # several flags
    $CC $("$out/pkg-config" --cflags libcjson zlib liburing) -o "$scratch/program" \
        "$scratch/program.c" $("$out/pkg-config" --libs libcjson zlib liburing) \
            >>"$scratch/said" 2>&1
}

: "${CC:=cc}"
export CC

# CC may be several words, as the Makefile takes it.
make_cjson
make_zlib
make_uring version
check "all of them" run_deps 0
check "nothing is said" is_quiet
check "the headers are there" has_headers liburing.h liburing/barrier.h
check "cJSON has its file" has_parts cjson cJSON
# shellcheck disable=SC2086 # several
check "zlib has what berth uses of it" has_parts z $zlib_parts
check "liburing has its files" has_parts uring setup queue register syscall version
for package in libcjson zlib liburing; do
    check "pkg-config knows $package" knows $package
done
check "pkg-config knows nothing else" test "$(knows libdeflate; echo $?)" -eq 1
check "what is not there fails among others" \
    test "$("$out/pkg-config" --libs zlib libdeflate >/dev/null; echo $?)" -eq 1
check "its flags" says "-isystem $out/include" --cflags zlib
check "its libraries" says "-L$out/lib -lcjson
-L$out/lib -lz" --libs libcjson zlib
check "a program links" links

rm "$sources/liburing-2/src/version.c"
check "a liburing before 2.4" run_deps 0
check "has no version.c" has_parts uring setup queue register syscall

CC="env $CC"
check "a compiler of several words" run_deps 0
CC=${CC#env }

echo "exit 1" >"$sources/liburing-2/configure"
check "a liburing that is not for this machine" run_deps 0
check "is left out" told "liburing was not built ($out/liburing.log): left out"
check "pkg-config does not know it" test "$(knows liburing; echo $?)" -eq 1
check "the others are there" knows zlib

rm -r "$sources/liburing-2"
check "without liburing" run_deps 0
check "nothing is missed" is_quiet

echo "#error" >"$sources/vendor/zlib-1/trees.c"
check "what does not compile" run_deps 1

rm -r "$sources/vendor"
check "without zlib" run_deps 1
check "that is said" told "no sources of zlib in it"
make_zlib
rm -r "$sources/cJSON-1"
check "without cJSON" run_deps 1
check "that is said, too" told "no sources of cJSON in it"
rm -r "$sources/vendor"
check "without both" run_deps 1
check "both are said" told "no sources of cJSON, zlib in it"

end

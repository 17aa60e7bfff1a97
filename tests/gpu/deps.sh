#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds cJSON, zlib and, where they are, liburing from sources, for machines on which these are
# not installed and nothing can be fetched.
#
#   tests/gpu/deps.sh SOURCES FOLDER    SOURCES holds a folder of each: cJSON*, zlib*, liburing*
#
# Headers, archives and a pkg-config that knows of these and of nothing else go to FOLDER, an
# absolute path.
set -u
sources=$1 folder=$2
: "${CC:=cc}"
mkdir -p "$folder/include/cjson" "$folder/lib" || exit 1

# The folder that this header lies in.
find_source() # HEADER
{
    find "$sources" -maxdepth 4 -name "$1" -not -path '*/build/*' 2>/dev/null | sort |
        head -n 1 | xargs -r dirname
}

# Every C file given into one archive.
archive() # NAME FLAGS FILE...
{
    name=$1 flags=$2
    shift 2
    mkdir -p "$folder/objects.$name"
    for file in "$@"; do
        # shellcheck disable=SC2086 # several words and flags
        $CC -O2 -fPIC -w $flags -c -o "$folder/objects.$name/$(basename "$file" .c).o" \
            "$file" || return 1
    done
    ar rcs "$folder/lib/lib$name.a" "$folder/objects.$name"/*.o
}

describe() # PACKAGE INCLUDE LIBRARY
{
    printf -- '-isystem %s\n-L%s -l%s\n' "$2" "$folder/lib" "$3" >"$folder/$1.pc"
}

cjson=$(find_source cJSON.h)
zlib=$(find_source zconf.h)
uring=$(find_source liburing.h)
missing=
[ -n "$cjson" ] || missing=cJSON
[ -n "$zlib" ] || missing=${missing:+$missing, }zlib
if [ -n "$missing" ]; then
    echo "tests/gpu/deps.sh: $sources: no sources of $missing in it" >&2
    exit 1
fi
cp "$cjson/cJSON.h" "$folder/include/cjson/" && cp "$cjson/cJSON.h" "$folder/include/" &&
    archive cjson "-I$cjson" "$cjson/cJSON.c" &&
    describe libcjson "$folder/include" cjson || exit 1
cp "$zlib/zlib.h" "$zlib/zconf.h" "$folder/include/" &&
    archive z "-I$zlib -DHAVE_UNISTD_H -D_LARGEFILE64_SOURCE=1" \
        $(for part in adler32 crc32 deflate inffast inflate inftrees trees zutil; do
            echo "$zlib/$part.c"
        done) && describe zlib "$folder/include" z || exit 1

# Its own configure finds out what this machine's headers have.
build_uring() # SOURCE
{
    cp -R "$1" "$folder/liburing" &&
        (cd "$folder/liburing" && ./configure --cc="$CC") >"$folder/liburing.log" 2>&1 &&
        cp -R "$folder/liburing/src/include/." "$folder/include/" &&
        set -- "$folder"/liburing/src/setup.c "$folder"/liburing/src/queue.c \
            "$folder"/liburing/src/register.c "$folder"/liburing/src/syscall.c &&
        # Since 2.4.
        { [ ! -e "$folder/liburing/src/version.c" ] || set -- "$@" \
            "$folder/liburing/src/version.c"; } &&
        archive uring "-I$folder/include -include $folder/liburing/config-host.h -D_GNU_SOURCE
            -D_LARGEFILE_SOURCE -D_FILE_OFFSET_BITS=64 -DLIBURING_INTERNAL" "$@" \
            2>>"$folder/liburing.log" &&
        describe liburing "$folder/include" uring
}
[ -z "$uring" ] || build_uring "$uring/../.." ||
    echo "tests/gpu/deps.sh: liburing was not built ($folder/liburing.log): left out" >&2

# What the Makefile and tests/deps.sh ask.
cat >"$folder/pkg-config" <<SCRIPT
#!/bin/sh
status=0
for word in "\$@"; do
    case \$word in
    --cflags) line=1 ;;
    --libs) line=2 ;;
    --exists) line=0 ;;
    -*) ;;
    *)
        if [ ! -e "$folder/\$word.pc" ]; then
            status=1
        elif [ "\${line:-0}" -gt 0 ]; then
            sed -n "\${line}p" "$folder/\$word.pc"
        fi
        ;;
    esac
done
exit \$status
SCRIPT
chmod +x "$folder/pkg-config"

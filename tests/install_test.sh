#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs into a folder of its own and uses berth from there as a stranger would: pkg-config
# against both libraries, CMake where there is one, the tool and its pages. Then uninstalls; nothing
# may stay.
# Run by `make check` (BERTH_BUILD, CC and the other settings come from there).
set -u
# A make of our own: not a part of the one that runs the tests.
unset MAKEFLAGS MAKELEVEL MFLAGS
# shellcheck source=tests/t.sh
. tests/t.sh
dest=$scratch/dest
prefix=/opt/berth
instrument=${SAN:+-fsanitize=$SAN}

cat >"$scratch/user.c" <<'END'
#include <berth.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    char version[64];
    snprintf(version, sizeof version, "%d.%d.%d", BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR,
             BERTH_VERSION_PATCH);
    printf("%s\n", berth_version());
    return strcmp(version, berth_version()) != 0;
}
END

of_berth()
{
    PKG_CONFIG_PATH=$dest$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dest pkg-config "$@" berth
}

# shellcheck disable=SC2046,SC2086 # flags are lists
use_shared()
{
    $CC $instrument $(of_berth --cflags) -o "$scratch/shared" "$scratch/user.c" \
        $(of_berth --libs) &&
        LD_LIBRARY_PATH=$dest$prefix/lib "$scratch/shared" &&
        ldd "$scratch/shared" | grep -q 'libberth\.so\.[0-9]*$\|libberth\.so\.[0-9]* =>'
}

# shellcheck disable=SC2046,SC2086
use_static()
{
    $CC $instrument $(of_berth --cflags) -o "$scratch/static" "$scratch/user.c" \
        $(of_berth --static --libs | sed 's/-lberth/-l:libberth.a/') && "$scratch/static" &&
        ! ldd "$scratch/static" | grep libberth
}

use_cmake()
{
    mkdir -p "$scratch/project" && cp "$scratch/user.c" "$scratch/project" || return 1
    cat >"$scratch/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.10)
project(user C)
find_package(berth 0.1 REQUIRED)
foreach(kind berth static)
    add_executable(user_${kind} user.c)
    target_link_libraries(user_${kind} berth::${kind})
endforeach()
END
    cmake -S "$scratch/project" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$dest$prefix" \
        -DCMAKE_C_FLAGS="$instrument" && cmake --build "$scratch/cmake" &&
        "$scratch/cmake/user_berth" && "$scratch/cmake/user_static"
}

# A version that this one cannot stand for must be refused.
refuse_version()
{
    sed -i 's/find_package(berth 0.1 /find_package(berth 99.0 /' "$scratch/project/CMakeLists.txt"
    ! cmake -S "$scratch/project" -B "$scratch/refused" -DCMAKE_PREFIX_PATH="$dest$prefix"
}

has_all_files()
{
    for file in bin/berth include/berth.h lib/libberth.a lib/libberth.so \
        "lib/libberth.so.${VERSION%%.*}" "lib/libberth.so.$VERSION" \
        lib/pkgconfig/berth.pc lib/cmake/berth/berth-config.cmake \
        lib/cmake/berth/berth-config-version.cmake share/man/man1/berth.1 \
        share/man/man1/berth-quantize.1 share/man/man3/berth.3 share/man/man5/berth-journal.5 \
        share/man/man1/berth-estimate.1 share/man/man5/berth-estimate.5 \
        share/man/man5/berth-links.5 share/man/man5/berth-manifest.5 \
        share/man/man5/berth-plan.5 share/man/man5/berth-rules.5 \
        share/man/man5/berth-devices.5 share/man/man5/berth-optimizer.5 \
        share/man/man5/berth-json.5 \
        share/bash-completion/completions/berth.bash share/zsh/site-functions/_berth \
        share/fish/vendor_completions.d/berth.fish; do
        [ -e "$dest$prefix/$file" ] || { echo "missing: $prefix/$file" && return 1; }
    done
}

# Each page says of which berth it is, and the same on every day: mdoc(7) takes the day on which a
# page is read for a date that it does not know.
shows_pages()
{
    for page in "$dest$prefix"/share/man/man?/*; do
        ! grep '^\.Dd' "$page" | grep -v '^\.Dd [A-Z][a-z]* [0-9]*, [0-9]*$' &&
            wrong=$(groff -ww -mandoc -z "$page" 2>&1) && [ -z "$wrong" ] &&
            groff -mandoc -Tascii "$page" | tail -n 1 | grep -q "^berth $VERSION" ||
            { echo "$page: ${wrong:-its date, or its foot}" && return 1; }
    done
}

# Nothing of the build's own place may be written into what is installed.
names_no_scratch()
{
    ! grep -rl "$scratch" "$dest$prefix/lib/pkgconfig" "$dest$prefix/lib/cmake"
}

# Whoever installs may keep what he writes to himself.
is_for_everybody()
{
    closed=$(find "$dest" \( -type d ! -perm -o=rx -o -type f ! -perm -o=r \)) &&
        [ -z "$closed" ] || { echo "$closed" && return 1; }
}

is_empty()
{
    make uninstall DESTDIR="$dest" PREFIX=$prefix && [ -z "$(find "$dest" ! -type d)" ] ||
        { find "$dest" ! -type d && return 1; }
}

# A folder whose name has blanks; one that only begins as it does is another.
takes_blanks()
{
    mkdir "$scratch/dest" && : >"$scratch/dest/kept" &&
        make install DESTDIR="$scratch/dest and more" PREFIX=$prefix &&
        [ -x "$scratch/dest and more$prefix/bin/berth" ] &&
        make uninstall DESTDIR="$scratch/dest and more" PREFIX=$prefix &&
        [ -z "$(find "$scratch/dest and more" ! -type d)" ] && rm "$scratch/dest/kept"
}

# In a prefix there can be none: nothing is made, and nothing removed.
refuses_blanks()
{
    : >"$scratch/kept" && ! make install PREFIX="$scratch/kept and more" &&
        ! make uninstall PREFIX="$scratch/kept and more" && rm "$scratch/kept" &&
        [ ! -e "$scratch/kept and more" ]
}

# berth.pc is read from anywhere.
takes_relative()
{
    relative=$(realpath -m --relative-to=. "$scratch/relative") &&
        make install PREFIX="$relative" &&
        grep -qx "libdir=$(realpath "$scratch")/relative/lib" "$relative/lib/pkgconfig/berth.pc" &&
        make uninstall PREFIX="$relative" && [ -z "$(find "$relative" ! -type d)" ]
}

check "a folder with blanks" takes_blanks
check "a relative prefix" takes_relative
check "a prefix with blanks" refuses_blanks
umask 077
check "make install" make install DESTDIR="$dest" PREFIX=$prefix || end
check "everybody may read what is installed" is_for_everybody
umask 022
check "all files are there" has_all_files
if command -v groff >/dev/null 2>&1; then
    check "man pages tell the version, and no date of their own" shows_pages
else
    skip "man pages: there is no groff"
fi
check "the installed files do not name the staging folder" names_no_scratch
check "the version in berth.pc" [ "$(of_berth --modversion)" = "$VERSION" ]
check "the tool runs" "$dest$prefix/bin/berth" --version
check "a program with the shared library" use_shared
check "a program with the static library" use_static
if command -v cmake >/dev/null 2>&1; then
    check "find_package(berth)" use_cmake
    check "find_package refuses another version" refuse_version
else
    skip "find_package(berth): there is no cmake"
fi
check "make uninstall leaves nothing" is_empty
end

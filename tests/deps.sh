#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What berth needs to be built: says what is missing, installs it, tells how to link the optional
# libraries.
#
#   tests/deps.sh missing                prints the missing packages by this system's names
#   tests/deps.sh install [ci]           installs what is missing; ci: what .ci/run needs, too
#   tests/deps.sh link PACKAGE LIBRARY   prints how to link an optional library, if it is there
#
# With CC=aarch64-linux-gnu-gcc (or clang --target=...) on another machine these are the libraries
# of that one, which Debian installs beside its own, and an emulator.
#
# Reads CC, PKG_CONFIG, URING and LIBDEFLATE as the Makefile gives them.
set -u
CC=${CC:-cc}
PKG_CONFIG=${PKG_CONFIG:-pkg-config}
# `CC="ccache gcc"` is a command with an argument: what must exist is its first word.
compiler=${CC%% *}
# Debian's name of the architecture that CC makes code for, if it is not this machine's. A compiler
# that is not there yet says it by its own name.
foreign=
case $($CC -dumpmachine 2>/dev/null || echo "$compiler") in
aarch64-*linux-gnu*)
    if [ "$(uname -m)" != aarch64 ]; then
        foreign=arm64
        export PKG_CONFIG_LIBDIR="${PKG_CONFIG_LIBDIR:-/usr/lib/aarch64-linux-gnu/pkgconfig}"
    fi
    ;;
esac

have()
{
    command -v "$1" >/dev/null 2>&1
}

# Sets `manager`, and `column`: where its names stand in the table below.
find_manager()
{
    column=2
    for manager in apt-get dnf pacman zypper apk; do
        have $manager && return
        column=$((column + 1))
    done
    manager=unknown column=1
}

# The package of this system that holds what berth calls by the first column.
package_name()
{
    name=$(awk -v want="$1" -v column="$column" '$1 == want { print $column }' <<TABLE
compiler    gcc                gcc                   gcc         gcc              gcc
libc        libc6-dev          glibc-devel           glibc       glibc-devel      musl-dev
pkg-config  pkg-config         pkgconf-pkg-config    pkgconf     pkg-config       pkgconf
zlib        zlib1g-dev         zlib-devel            zlib        zlib-devel       zlib-dev
libcjson    libcjson-dev       cjson-devel           cjson       cJSON-devel      cjson-dev
liburing    liburing-dev       liburing-devel        liburing    liburing-devel   liburing-dev
libdeflate  libdeflate-dev     libdeflate-devel      libdeflate  libdeflate-devel libdeflate-dev
clang       clang              clang                 clang       clang            clang
clang-rt    libclang-rt-dev    compiler-rt           compiler-rt clang            compiler-rt
llvm        llvm               llvm                  llvm        llvm             llvm
c++         g++                gcc-c++               gcc         gcc-c++          g++
cppcheck    cppcheck           cppcheck              cppcheck    cppcheck         cppcheck
valgrind    valgrind           valgrind              valgrind    valgrind         valgrind
cmake       cmake              cmake                 cmake       cmake            cmake
python      python3-venv       python3               python      python3          python3
emulator    qemu-user          qemu-user             qemu-user   qemu-linux-user  qemu-aarch64
aarch64-linux-gnu-gcc  gcc-aarch64-linux-gnu
TABLE
    )
    echo "${name:-$1}"
}

# Whether a library is there for the compiler; before there is one, whether its header is.
have_library()
{
    if have "$PKG_CONFIG" && have "$compiler"; then
        "$PKG_CONFIG" --exists "$1" 2>/dev/null
    else
        [ -z "$foreign" ] && { [ -e "/usr/include/$2" ] || [ -e "/usr/local/include/$2" ]; }
    fi
}

need()
{
    missing="$missing $(package_name "$1")"
    case $foreign:$1 in arm64:lib* | arm64:zlib) missing=$missing:$foreign ;; esac
}

# What no build goes without, and what the caller forced on.
find_missing()
{
    missing=
    if ! have "$compiler"; then
        case $compiler in
        cc | gcc) need compiler ;;
        *) need "$compiler" ;;
        esac
    fi
    if have "$compiler"; then
        echo '#include <stdio.h>' | $CC -E - >/dev/null 2>&1 || need libc
    elif [ -n "$foreign" ] || [ ! -e /usr/include/stdio.h ]; then
        need libc
    fi
    have "$PKG_CONFIG" || need pkg-config
    have_library zlib zlib.h || need zlib
    have_library libcjson cjson/cJSON.h || need libcjson
    [ "${URING:-auto}" != 1 ] || have_library liburing liburing.h || need liburing
    [ "${LIBDEFLATE:-auto}" != 1 ] || have_library libdeflate libdeflate.h || need libdeflate
}

find_missing_for_ci()
{
    have clang || need clang
    have g++ || need c++
    have llvm-symbolizer || need llvm
    have ld.lld || need lld
    have cppcheck || need cppcheck
    have valgrind || need valgrind
    have cmake || need cmake
    have zsh || need zsh
    have fish || need fish
    python3 -c 'import venv, ensurepip' 2>/dev/null || need python
    # Elsewhere Slurm is no single package, and mpirun not on the PATH.
    if [ "$manager" = apt-get ]; then
        have mpirun || need openmpi-bin
        have sbatch || need slurm-wlm
        # Ubuntu has no such package, only a way to another store.
        have chromium || [ "$(. /etc/os-release && echo "$ID")" != debian ] || need chromium
        [ -e /usr/share/fonts/truetype/dejavu ] || need fonts-dejavu-core
    fi
    if have clang; then
        echo 'int main(void) { return 0; }' |
            clang -x c -fsanitize=address -o /dev/null - 2>/dev/null || need clang-rt
    else
        need clang-rt
    fi
}

# Sets `update` and `add` to the commands of this system's package manager, `become` to what runs
# them.
manager_commands()
{
    update=true become=
    case $manager in
    apt-get)
        update="apt-get update -qq"
        add="apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0"
        become="env DEBIAN_FRONTEND=noninteractive"
        ;;
    dnf) add="dnf install -y -q" ;;
    pacman) add="pacman -Sy --needed --noconfirm" ;;
    zypper) add="zypper --non-interactive --quiet install" ;;
    apk) add="apk add --quiet" ;;
    *)
        echo "berth: no known package manager was found; install what gives:$missing" >&2
        exit 1
        ;;
    esac
}

# A system whose archive has no such packages is left as it was.
install_packages()
{
    added=
    if [ -n "$foreign" ] && ! dpkg --print-foreign-architectures | grep -qx "$foreign"; then
        $become dpkg --add-architecture "$foreign" || return
        added=$foreign
    fi
    # shellcheck disable=SC2086 # commands with arguments, a list of packages
    $become $update && $become $add $missing && return
    [ -z "$added" ] || $become dpkg --remove-architecture "$added"
    return 1
}

install_missing()
{
    find_missing
    have_library liburing liburing.h || need liburing
    have_library libdeflate libdeflate.h || need libdeflate
    [ -z "$foreign" ] || have qemu-aarch64 || need emulator
    [ "${1:-}" != ci ] || find_missing_for_ci
    if [ -z "$missing" ]; then
        echo "berth: everything needed is installed"
        return 0
    fi
    manager_commands
    if [ -n "$foreign" ] && [ "$manager" != apt-get ]; then
        echo "berth: packages of another architecture are known of Debian only:$missing" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        become="sudo -n $become"
        if ! have sudo || ! sudo -n true 2>/dev/null; then
            echo "berth: installing packages needs root. Run:" >&2
            case $manager in
            apt-get)
                [ -z "$foreign" ] || echo "    sudo dpkg --add-architecture $foreign" >&2
                echo "    sudo apt-get update && sudo apt-get install -y$missing" >&2
                ;;
            *) echo "    sudo $add$missing" >&2 ;;
            esac
            return 1
        fi
    fi
    log=$(mktemp "${TMPDIR:-/tmp}/berth-deps.XXXXXX") || return 1
    echo "berth: installing$missing"
    if install_packages </dev/null >"$log" 2>&1; then
        rm -f "$log"
        echo "berth: installed"
        return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "berth: this command failed: $add$missing" >&2
    return 1
}

# A static archive is taken where it exists and its code may go into a shared library.
link_library()
{
    "$PKG_CONFIG" --exists "$1" 2>/dev/null || return 0
    archive=$($CC -print-file-name="lib$2.a")
    case $archive in
    /*)
        $CC -shared -o /dev/null -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
            2>/dev/null && echo "$archive" && return
        ;;
    esac
    "$PKG_CONFIG" --libs "$1"
}

find_manager
case ${1:-} in
missing)
    find_missing
    echo "${missing# }"
    ;;
install) install_missing "${2:-}" ;;
link) link_library "$2" "$3" ;;
*)
    echo "usage: tests/deps.sh missing | install [ci] | link PACKAGE LIBRARY" >&2
    exit 2
    ;;
esac

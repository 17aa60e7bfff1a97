#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rules of the house that a compiler does not enforce. `make lint` runs all of them.
#
#   tests/lint.sh [CHECK]...      from the root of the tree; no argument: all checks
#
# A check prints what it refuses, one finding a line; no line, no finding. Each counts as one test.
# BERTH_BUILD  the folder of this build's objects      LIB_SOURCES  the library's sources
# CLANG_BUILD  what `make` is given where clang has compiled most files already ("SAN=thread")
set -u
export LC_ALL=C
BERTH_BUILD=${BERTH_BUILD:-}
LIB_SOURCES=${LIB_SOURCES:-}
LAYERS="kernels quant placement loader"
CC=${CC:-cc}
DIALECT="-pedantic -Wall -Wextra -Wconversion -Wshadow -Wundef -Werror"
WARNINGS="-std=c11 -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -Wvla -Werror -O2 -ffp-contract=off -I."
CHECKS="dialects headers guards types layers fences format words exports globals mutable process
    ground programs compilers cppcheck scripts selftest"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/berth-lint.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

# The files of the tree, tracked or about to be; the work tree's own list where there is no git.
tree_files()
{
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard
    else
        find . -type f ! -path './build/*' ! -path './.git/*' | sed 's|^\./||'
    fi | while read -r file; do
        [ ! -e "$file" ] || echo "$file"
    done | sort -u
}
tree_files >"$scratch/files"

# What people wrote, without recorded inputs and expected outputs.
own_files()
{
    grep -vE '^(LICENSE$|tests/data/|tests/fuzz/corpus/|tests/cli/.*/)' "$scratch/files"
}

sources_in()
{
    grep -E "^($(echo "$1" | tr ' ' '|'))/.*\.(c|h|cu|cuh)$" "$scratch/files"
}

# What nvcc adds to kernels is its own affair.
objects()
{
    for source in $LIB_SOURCES; do
        case $source in
        *.cu) ;;
        *) echo "$BERTH_BUILD/release/${source%.*}.o" ;;
        esac
    done
}

# "path/of/source symbol" for every symbol of the library's objects that nm's options select.
symbols()
{
    for object in $(objects); do
        name=${object#"$BERTH_BUILD"/release/}
        nm "$@" "$object" | awk -v name="${name%.o}" 'NF > 1 { print name, $NF }'
    done
}

# Both kinds that are there. That of this build is called as it calls it, so that what it has
# compiled is not compiled again.
compilers()
{
    own=$(readlink -f "$(command -v "$CC")")
    for compiler in gcc clang; do
        found=$(readlink -f "$(command -v $compiler)")
        case $found in
        "") ;;
        "$own") echo "$CC" ;;
        *) echo $compiler ;;
        esac
    done
}

# Runs the commands that it reads, one a line, as many at a time as there are cores.
all_cores()
{
    xargs -P "$(nproc)" -L 1 env 2>&1
}

# The instruction set that a file is for, by its name, as in the Makefile.
level_of()
{
    case $1 in
    *avx2.[ch]) echo "-mavx2 -mfma -mf16c" ;;
    *avx512bf16.c)
        echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512bf16" ;;
    *amx.[ch])
        echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mamx-tile -mamx-bf16" ;;
    *avx512vbmi.c | *map_bytes512.h)
        echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vbmi" ;;
    *512.[ch]) echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c" ;;
    esac
}

# ---- the public header -------------------------------------------------------------------------

# berth.h alone, twice, in every dialect that a user may compile it with.
lint_dialects()
{
    printf '#include "loader/berth.h"\n#include "loader/berth.h"\nint used;\n' >"$scratch/user.c"
    for compiler in $(compilers); do
        for std in c99 c11 c17; do
            $compiler -std=$std $DIALECT -I. -fsyntax-only -x c "$scratch/user.c" 2>&1
        done
        # A C compiler without its C++ half cannot say anything here.
        echo | $compiler -x c++ -fsyntax-only - 2>/dev/null || continue
        for std in c++11 c++14 c++17 c++20; do
            $compiler -std=$std $DIALECT -I. -fsyntax-only -x c++ "$scratch/user.c" 2>&1
        done
    done
}

# The shared library's names are those mapped in berth.map and declared in berth.h, all with prefix.
lint_exports()
{
    nm -D --defined-only "$BERTH_BUILD"/libberth.so |
        awk 'NF > 2 && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$scratch/exported"
    sed -n '/global:/,/local:/p' loader/berth.map | tr -d ' \t' | tr ';' '\n' |
        grep -E '^[a-z_0-9*]+$' | sort >"$scratch/mapped"
    awk '/^BERTH_API/ { text = ""; on = 1 }
        on { text = text " " $0 }
        on && /\(/ {
            sub(/ *\(.*/, "", text); n = split(text, word, /[ *]+/); print word[n]; on = 0
        }' loader/berth.h | sort >"$scratch/declared"
    grep -v '^berth_' "$scratch/exported" | sed 's/^/exported without prefix: /'
    for list in mapped declared; do
        comm -23 "$scratch/exported" "$scratch/$list" | sed "s/^/exported, not $list: /"
        comm -13 "$scratch/exported" "$scratch/$list" | sed "s/^/$list, not exported: /"
    done
}

# ---- text --------------------------------------------------------------------------------------

# Every header compiles on its own, under each compiler.
lint_headers()
{
    mkdir -p "$scratch/units"
    for header in $(sources_in "$LAYERS tools tests" | grep '\.h$'); do
        unit=$scratch/units/$(echo "$header" | tr / .).c
        printf '#include "%s"\ntypedef int lint_unit;\n' "$header" >"$unit"
        for compiler in $(compilers); do
            # shellcheck disable=SC2046,SC2086 # one command a line
            echo $compiler $WARNINGS $(level_of "$header") -DBERTH_TESTING -fsyntax-only "$unit"
        done
    done | all_cores
}

lint_guards()
{
    for header in $(sources_in "$LAYERS tools tests" | grep '\.h$'); do
        guard=BERTH_$(echo "$header" | tr 'a-z/.-' 'A-Z___')
        grep -q "^#ifndef $guard\$" "$header" || echo "$header: the include guard is not $guard"
    done
}

# One name, one type: two headers that give a name to different types cannot be included together,
# and whoever reads it has to know which is meant. A struct that one header announces may be made of
# other things in others, of which each is one kind of device.
lint_types()
{
    sources_in "$LAYERS tools tests" | grep '\.h$' | xargs -r awk '
        function take(name) {
            if (seen[FILENAME, name]++) return
            if (name in home) print FILENAME ":" FNR ": " name " is a type of " home[name]
            else home[name] = FILENAME
        }
        /^typedef (struct|union|enum) [a-z_0-9]+ [a-z_0-9]+;/ && $3 ";" == $4 {
            announced[FILENAME, $3] = 1; next }
        /^(struct|union) [a-z_0-9]+ \{/ { if ((FILENAME, $2) in announced) take($2); next }
        /^typedef (struct|union|enum) [a-z_0-9]+ \{/ { take($3); next }
        /^} [a-z_0-9]+;/ { sub(/;.*/, "", $2); take($2); next }
        /^typedef / {
            sub(/[;,]?[ ]*(\/\*.*)?$/, "")
            if (match($0, /\(\*[a-z_0-9]+\)\(/)) take(substr($0, RSTART + 2, RLENGTH - 4))
            else if (match($0, /[a-z_0-9]+\(/)) take(substr($0, RSTART, RLENGTH - 1))
            else if (!/[{]$/) take($NF)
        }'
}

# An include never points upward; a tool sees the public header and its own. berth.h is vocabulary:
# it includes only standard headers, so every layer may include it.
lint_layers()
{
    for file in $(sources_in "$LAYERS tools"); do
        awk -v file="$file" '
            BEGIN {
                split("kernels quant placement loader tools", name)
                for (i in name) rank[name[i]] = i + 0
                own = file; sub(/\/.*/, "", own)
            }
            function refuse(why) { print file ":" FNR ": " why }
            /^[ \t]*#[ \t]*include[ \t]*"/ {
                split($0, quoted, "\""); path = quoted[2]
                folder = path; sub(/\/.*/, "", folder)
                if (path == "loader/berth.h") next
                if (path !~ /\//) refuse("\"" path "\" is not written from the root of the tree")
                else if (!(folder in rank)) refuse(own " may not include " path)
                else if (own == "tools" && folder != "tools")
                    refuse("a tool includes " path "; it sees only loader/berth.h and tools/")
                else if (rank[folder] > rank[own])
                    refuse(own " may not include " path ": the include points upward")
            }' "$file"
    done
    ! grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' loader/berth.h /dev/null
}

# refuse_include PATTERN ALLOWED: only files that match ALLOWED include headers that match PATTERN.
refuse_include()
{
    sources_in "$LAYERS tools" | grep -vE "^($2)$" | xargs -r grep -nE \
        "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]([a-z]+/)?($1)[>\"]" /dev/null |
        sed "s#\$# (fenced: only $2)#"
}

lint_fences()
{
    refuse_include 'cJSON\.h' 'quant/json\.c'
    refuse_include 'zlib\.h|libdeflate\.h' 'kernels/digest\.c'
    refuse_include 'liburing\.h' 'loader/reader_uring\.c'
    refuse_include 'cuda[a-zA-Z_]*\.h|cublas[a-zA-Z_]*\.h' 'kernels/.*'
    refuse_include 'assert\.h|setjmp\.h|locale\.h' 'tools/.*'
    # Masks of threads alone: what else a process has of signals, process refuses by its symbol.
    refuse_include 'signal\.h' 'tools/.*|kernels/sys_process\.c'
    refuse_include 'fenv\.h' 'kernels/float_mode\.h'
}

# Columns are characters: of a UTF-8 sequence only the first byte counts.
lint_format()
{
    own_files | xargs -r awk '
        FNR == 1 { code = FILENAME ~ /\.(c|h|cu|cuh)$/ }
        FNR == 1 { script = FILENAME ~ /\.(sh|py)$|^Makefile$|^\.ci\// }
        FNR == 1 && code && $0 != "/* SPDX-License-Identifier: Apache-2.0 */" {
            print FILENAME ": the first line is not the SPDX line" }
        FNR == 2 && script && last !~ /SPDX/ && !/^# SPDX-License-Identifier: Apache-2.0$/ {
            print FILENAME ": the second line is not the SPDX line" }
        { last = $0 }
        /\t/ && FILENAME != "Makefile" { print FILENAME ":" FNR ": tab" }
        /[ \t\r]$/ { print FILENAME ":" FNR ": trailing blank" }
        code && /^ += / { print FILENAME ":" FNR ": begins with what ends the line before: =" }
        code && /[^ *] (&&|\|\|)( +\\)?$/ {
            print FILENAME ":" FNR ": ends with what begins the next line: && or ||" }
        code || script {
            line = $0; gsub(/[\200-\277]/, "", line)
            if (length(line) > 100) print FILENAME ":" FNR ": " length(line) " columns" }' /dev/null
}

# The words are spelled apart, or these lines would be the first findings. A comment stands by
# itself: documents that the tree does not have cannot be opened by its readers. A test may open
# what lies beside the tree.
lint_words()
{
    own_files | xargs -r grep -nwE 'TO''DO|FIX''ME|XX''X|HA''CK' /dev/null
    own_files | grep -vxE '(README|CHANGELOG)\.md' >"$scratch/citing"
    xargs -r grep -nowE '[A-Za-z0-9_-]+\.md' /dev/null <"$scratch/citing" |
        grep -vE ':(README|CHANGELOG)\.md$' | sed 's/$/ is a document that the tree does not have/'
    xargs -r grep -nE 'shared''/spec' /dev/null <"$scratch/citing" |
        grep -vF '"../shared''/spec/' | sed 's/$/ (lies outside the tree)/'
}

lint_scripts()
{
    own_files | grep -E '\.sh$' | while read -r script; do
        case $(head -n 1 "$script") in
        *bash) bash -n "$script" 2>&1 ;;
        *) sh -n "$script" 2>&1 ;;
        esac
    done
}

# How programs are run is said of programs that are there, once, in words that are explained.
lint_programs()
{
    table=tests/programs.sh
    [ -e $table ] || return 0
    sed -n 's/^#   \([a-z-]*\)  .*/\1/p' $table >"$scratch/explained"
    sed "1,/<<'TABLE'/d; /^TABLE\$/d" $table >"$scratch/table"
    while read -r name words; do
        [ -e "tests/test_$name.c" ] || echo "$table: there is no tests/test_$name.c"
        for word in $words; do
            grep -qx -e "$word" "$scratch/explained" || echo "$table: $name: what is $word?"
        done
    done <"$scratch/table"
    cut -d' ' -f1 "$scratch/table" | sort | uniq -d | sed "s|^|$table: twice: |"
}

# ---- objects -----------------------------------------------------------------------------------

# A static link cannot collide: what an object shares carries berth's prefix.
lint_globals()
{
    symbols -g --defined-only | grep -vE ' berthi?_' | sed 's/ / defines a global without prefix: /'
}

# No state outside objects that the caller holds; constant tables with addresses in them are fine.
lint_mutable()
{
    for object in $(objects); do
        name=${object#"$BERTH_BUILD"/release/}
        nm -f sysv "$object" | awk -F'|' -v name="${name%.o}" '
            { gsub(/ /, "", $1); gsub(/ /, "", $7) }
            ($7 ~ /^\.(data|bss|tdata|tbss)/ || $7 == "*COM*") && $7 !~ /^\.data\.rel\.ro/ {
                print name " keeps mutable state: " $1 }'
    done
}

# refer_to NAME...: what the library's objects need of these
refer_to()
{
    symbols -u | grep -E " _*($(echo "$*" | tr -s ' ' '|'))\$"
}

# A library does not end, talk for, or rearrange the process it lives in.
lint_process()
{
    {
        refer_to abort exit Exit quick_exit atexit assert assert_fail assert_perror_fail \
            longjmp longjmp_chk siglongjmp
        refer_to printf fprintf vprintf vfprintf dprintf vdprintf printf_chk fprintf_chk \
            vprintf_chk vfprintf_chk dprintf_chk puts fputs putchar fputc putc perror psignal \
            stderr stdout stdin
        refer_to signal sigaction sigprocmask sigaltstack raise kill alarm setitimer
        refer_to getenv secure_getenv setenv unsetenv putenv clearenv environ setlocale \
            newlocale uselocale
        refer_to fork vfork system popen execve chdir fchdir umask
    } | sed 's/ / refers to /'
}

# Memory and system calls go through the ground floor, which counts them and lets tests fail them.
lint_ground()
{
    refer_to malloc calloc realloc reallocarray free aligned_alloc posix_memalign strdup strndup \
        asprintf vasprintf | grep -v '^kernels/memory ' |
        sed 's/ / allocates past kernels\/memory: /'
    {
        refer_to open open64 openat openat64 close read pread pread64 preadv preadv64 write pwrite \
            pwrite64 fopen fopen64 fclose stat stat64 fstat fstat64 lstat lstat64 fstatat \
            fstatat64 statx mmap mmap64 munmap madvise posix_fadvise posix_fadvise64
        refer_to rename renameat unlink unlinkat mkdir mkdirat opendir fdopendir readdir readdir64 \
            closedir fsync fdatasync ioctl fcntl fcntl64 readlink readlinkat realpath ftruncate \
            ftruncate64 access faccessat pthread_create pthread_sigmask syscall
    } | grep -Ev '^kernels/sys(_write|_process)? ' |
        sed 's/ / calls the system past kernels\/sys: /'
}

# ---- other eyes --------------------------------------------------------------------------------

# Everything under both compilers, whichever one this build uses, each with objects of its own.
lint_compilers()
{
    for compiler in $(compilers); do
        case $compiler in
        clang) echo "${CLANG_BUILD:-}" ;;
        *) echo ;;
        esac | xargs env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS \
            make -s -k CC="$compiler" WERROR=1 compiled 2>&1
    done
}

# Suppressed, each with its reason:
#   missingIncludeSystem         what system headers declare is built in; reading them takes minutes
#   normalCheckLevelMaxBranches  says only that a longer analysis exists
check_with_cppcheck()
{
    cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability \
        --inline-suppr -I. --error-exitcode=1 --suppress=missingIncludeSystem \
        --suppress=normalCheckLevelMaxBranches --template='{file}:{line}: {id}: {message}' -j 2 \
        "$@" 2>&1
}

# Each name that a condition is about has every file checked once more. Those of CUDA and of the
# compiler are in a few headers, which one unit checks for all files. Those of machines are about
# code in kernels and tools alone; elsewhere, about which declarations there are.
lint_cppcheck()
{
    seldom='__CUDACC__|__CUDA_ARCH__|__GNUC__'
    common="-U__GNUC__ -U__CUDACC__ -U__CUDA_ARCH__"
    for header in $(sources_in "$LAYERS tools" | grep '\.h$'); do
        ! grep -qE "^# *(if|elif).*($seldom)" "$header" || echo "#include \"$header\""
    done >"$scratch/seldom.c"
    for file in $(sources_in "$LAYERS tools" | grep '\.c$'); do
        ! grep -nE "^# *(if|elif).*($seldom)" "$file" /dev/null |
            sed 's/$/ (for headers: lint_cppcheck would not see it)/'
    done
    for file in $(sources_in "quant placement loader" | grep '\.[ch]$'); do
        ! grep -nE '^# *(if|elif).*(__x86_64__|__aarch64__)' "$file" /dev/null |
            sed 's/$/ (for kernels and tools: lint_cppcheck would not see it)/'
    done
    check_with_cppcheck "$scratch/seldom.c"
    # shellcheck disable=SC2046,SC2086 # lists
    check_with_cppcheck $common $(sources_in "kernels tools" | grep '\.c$')
    # shellcheck disable=SC2046,SC2086
    check_with_cppcheck $common -U__x86_64__ -U__aarch64__ \
        $(sources_in "quant placement loader" | grep '\.c$')
}

# A lint that finds nothing may have looked at nothing.
lint_selftest()
{
    tests/lint_selftest.sh 2>&1
}

# is_check NAME
is_check()
{
    for known in $CHECKS; do
        [ "$1" != "$known" ] || return 0
    done
    return 1
}

passed=0 failed=0 skipped=0
[ $# -gt 0 ] || set -- $CHECKS
for check in "$@"; do
    is_check "$check" && continue
    # shellcheck disable=SC2086 # one line
    echo "lint: no check is called \"$check\"; there are:" $CHECKS
    exit 1
done
for check in "$@"; do
    if [ "$check" = cppcheck ] && ! command -v cppcheck >/dev/null 2>&1; then
        echo "lint: cppcheck: skipped: it is not installed"
        skipped=$((skipped + 1))
        continue
    fi
    "lint_$check" >"$scratch/findings"
    if [ -s "$scratch/findings" ]; then
        echo "lint: $check: FAILED"
        sed 's/^/    /' "$scratch/findings"
        failed=$((failed + 1))
    else
        echo "lint: $check: passed"
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]

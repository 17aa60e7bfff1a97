#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants what lint must refuse in a small tree of its own and checks that each is refused by name.
# Prints what was not refused, or refused without cause; nothing when lint is awake.
set -u
CC=${CC:-cc}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/berth-plant.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
root=$(pwd)
spdx='/* SPDX-License-Identifier: Apache-2.0 */'

# start: an empty tree with one sound file per place that the plants need
start()
{
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/kernels" "$scratch/tree/quant" "$scratch/tree/placement" \
        "$scratch/tree/loader" "$scratch/tree/tools" "$scratch/tree/tests"
    cp "$root/tests/lint.sh" "$scratch/tree/tests/"
    cp "$root/loader/berth.h" "$scratch/tree/loader/"
    cd "$scratch/tree" || exit 1
    printf '%s\n#ifndef BERTH_QUANT_UP_H\n#define BERTH_QUANT_UP_H\n#endif\n' "$spdx" >quant/up.h
    file kernels/sound.c '#include "loader/berth.h"' 'int berthi_sound(int x);' \
        'static const char *const names[] = {"a", "b"};' \
        'int berthi_sound(int x) { return names[x & 1][0]; }'
    file quant/sound.c '#include "quant/up.h"' 'int berthi_other(void);' \
        'int berthi_other(void) { return 1; }'
    file tools/sound.c '#include "loader/berth.h"' 'int main(void) { return 0; }'
}

# file PATH LINE...
file()
{
    path=$1
    shift
    printf '%s\n' "$spdx" "$@" >"$path"
}

# lint CHECK...: the library's objects made anew, as far as they compile, then the checks
lint()
{
    rm -rf "$scratch/build"
    mkdir -p "$scratch/build/release/kernels" "$scratch/build/release/quant"
    compiled=
    for source in kernels/*.c quant/*.c; do
        object=$scratch/build/release/${source%.c}.o
        $CC -std=c11 -fPIC -O2 -I. -c -o "$object" "$source" 2>/dev/null &&
            compiled="$compiled $source"
    done
    BERTH_BUILD=$scratch/build LIB_SOURCES=$compiled sh tests/lint.sh "$@" 2>&1
}

# refused NAME CHECK WORD...: lint's CHECK fails and names every WORD
refused()
{
    name=$1 check=$2
    shift 2
    said=$(lint "$check") && echo "$name: not refused by $check"
    for word in "$@"; do
        case $said in
        *"$word"*) ;;
        *) echo "$name: $check does not name $word" ;;
        esac
    done
}

start
said=$(lint guards types layers fences format words globals mutable process ground scripts) ||
    printf 'a sound tree is refused:\n%s\n' "$said"

file kernels/plant.c '#include "quant/up.h"' 'typedef int plant;'
refused "an upward include" layers kernels/plant.c:2 quant/up.h upward
start
file tools/plant.c '#include "quant/up.h"' 'typedef int plant;'
refused "a tool that reaches past the public header" layers tools/plant.c:2 quant/up.h
start
file quant/plant.c '#include "up.h"' 'typedef int plant;'
refused "an include not written from the root" layers quant/plant.c:2 up.h
start
file kernels/plant.c 'int leaked_name(void);' 'int leaked_name(void) { return 1; }'
refused "a global without prefix" globals kernels/plant leaked_name
start
file kernels/plant.c 'int berthi_plant(void);' \
    'int berthi_plant(void) { static int calls; return ++calls; }'
refused "a hidden counter" mutable kernels/plant calls
start
file kernels/plant.c '#include <stdio.h>' 'void berthi_plant(int n);' \
    'void berthi_plant(int n) { printf("%d apples", n); }'
refused "a library that prints" process kernels/plant printf
start
file kernels/plant.c '#include <stdlib.h>' 'void berthi_plant(void);' \
    'void berthi_plant(void) { abort(); }'
refused "a library that aborts" process kernels/plant abort
start
file kernels/plant.c '#include <stdio.h>' 'void berthi_plant(void);' \
    'void berthi_plant(void) { fputc(1, stderr); }'
refused "a library that knows stderr" process kernels/plant stderr
start
file quant/plant.c '#include <stdlib.h>' 'void *berthi_plant(void);' \
    'void *berthi_plant(void) { return malloc(7); }'
refused "memory that nobody counts" ground quant/plant malloc
start
file quant/plant.c '#include <unistd.h>' 'int berthi_plant(void);' \
    'int berthi_plant(void) { return close(3); }'
refused "a system call that no test can fail" ground quant/plant close
start
file kernels/plant.c '#include <cjson/cJSON.h>' 'typedef int plant;'
refused "cJSON outside its fence" fences kernels/plant.c:2 cJSON.h
start
file loader/plant.c '#include <zlib.h>' 'typedef int plant;'
refused "zlib outside its fence" fences loader/plant.c:2 zlib.h
start
file loader/plant.c '#include <signal.h>' 'typedef int plant;'
refused "signals outside their fence" fences loader/plant.c:2 signal.h
start
file loader/plant.c '#include <fenv.h>' 'typedef int plant;'
refused "a thread's mode outside its fence" fences loader/plant.c:2 fenv.h
start
file kernels/plant.c "$(printf '\tint x;')" 'int y; ' "int $(printf '%0100d' 0 | tr 0 z);"
refused "tab, trailing blank, long line" format "kernels/plant.c:2: tab" \
    "kernels/plant.c:3: trailing" "kernels/plant.c:4: 105 columns"
start
file kernels/plant.c 'int x' '    = 1;' 'int y = 1 &&' '    2;'
refused "lines that break elsewhere" format "kernels/plant.c:3: begins with" \
    "kernels/plant.c:4: ends with"
start
echo 'typedef int plant;' >kernels/plant.c
refused "a file without licence" format kernels/plant.c SPDX
start
file kernels/plant.c "/* $(printf 'TO%s' DO): later */"
refused "a promise" words kernels/plant.c:2
start
file kernels/plant.c "/* The order (kernel-formats.$(printf 'm%s' d)" ' * 8.5). */'
refused "a document that is not in the tree" words kernels/plant.c:2 kernel-formats
start
file kernels/plant.c "/* See ../shared/$(printf 's%s' pec), 7. */"
refused "a folder beside the tree" words kernels/plant.c:2 shared
start
file kernels/plant.h '#ifndef PLANT_H' '#define PLANT_H' '#endif'
refused "a guard with another name" guards kernels/plant.h BERTH_KERNELS_PLANT_H
start
file kernels/plant.h 'typedef struct berthi_plant berthi_plant;' 'typedef int berthi_seed;' \
    'typedef int (*berthi_grow)(int weeks);'
file quant/plant.h 'struct berthi_plant {' '    int leaves;' '};'
file loader/plant.h 'struct berthi_plant {' '    int roots;' '};'
said=$(lint types) || printf 'a struct made in two ways is refused:\n%s\n' "$said"
file loader/plant.h 'typedef enum berthi_seed {' '    BERTHI_SEED' '} berthi_seed;' \
    'typedef void (*berthi_grow)(void);' 'typedef struct berthi_root berthi_root;' \
    'struct berthi_root {' '    int depth;' '};'
file quant/plant.h 'typedef struct berthi_root {' '    int ways;' '} berthi_root;'
refused "one name for two types" types "quant/plant.h:2: berthi_root is a type of loader" \
    "loader/plant.h:2: berthi_seed is" "loader/plant.h:5: berthi_grow is"
start
file kernels/plant.h '#ifndef BERTH_KERNELS_PLANT_H' '#define BERTH_KERNELS_PLANT_H' \
    'uint64_t berthi_plant(void);' '#endif'
refused "a header that needs luck" headers kernels/plant.h uint64_t
start
printf '%s\n' '#   slow   takes minutes' "cat <<'TABLE'" 'plant   slow brisk' 'plant   slow' TABLE \
    >tests/programs.sh
refused "a test that is not there" programs tests/test_plant.c "what is brisk" "twice: plant"
start
refused "a check that there is not" formats '"formats"' " words " " selftest"
refused "no name of a check" "" 'called ""' " words "
start
sed -i 's/^#include <stdint.h>/&\nclass berth_plant;/' loader/berth.h
refused "a public header that a dialect refuses" dialects loader/berth.h

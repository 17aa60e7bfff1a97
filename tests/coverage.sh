#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which lines and branches of the parsers the tests reach.
#
#   tests/coverage.sh PROGRAM...     run by `make coverage`, which builds them
#
# What cannot be reached stands in tests/coverage.allow, one function a line:
#
#   quant/scan.c:berthi_scan_next: 0 lines, 1 branches: why no input gets there
#
# More than is listed fails, and so does less: the list stays true. Blank lines and # are ignored.
set -u
export LC_ALL=C
# The parsers and the index: everything that reads what a file says, and what prints it anew.
FILES=$(ls quant/scan*.c quant/json*.c quant/state*.c quant/config*.c quant/format.c \
    quant/members.c quant/heapsort.c quant/rules_file.c quant/glob.c loader/safetensors*.c \
    loader/index*.c loader/manifest*.c loader/journal.c loader/paths.c \
    loader/shard_name.c loader/layout_header.c loader/sniff*.c \
    placement/device_map.c placement/plan_parse*.c placement/plan_read.c placement/link_file.c \
    kernels/utf8.c kernels/escape.c 2>/dev/null)

build=$BERTH_BUILD
scratch=$(mktemp -d "${TMPDIR:-/tmp}/berth-coverage.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

find "$build" -name '*.gcda' -delete
tests/run.sh "$@" >"$scratch/run" ||
    { cat "$scratch/run" && exit 1; }
tail -n 1 "$scratch/run" | sed 's/^/coverage: of a run with /'

for file in $FILES; do
    gcov --stdout --branch-probabilities --branch-counts \
        --object-directory "$build/testing/${file%/*}" "$build/testing/${file%.c}.o" \
        2>"$scratch/error" >"$scratch/text" || { cat "$scratch/error" && exit 1; }
    # Only the file's own part: gcov prints included headers with inline functions, too.
    awk -v file="$file" '
        /^ *-: *0:Source:/ { on = ($0 ~ ":Source:" file "$"); next }
        !on { next }
        /^function / { name = $2; next }
        /^branch / {
            branches++
            taken = $0 ~ /taken/ ? $4 + 0 : 0
            if (taken == 0) print "branch", file ":" name, line, text
            next
        }
        /^ *[0-9=#-]+\*?: *[0-9]+:/ {
            split($0, part, ":"); count = part[1]; gsub(/ /, "", count); line = part[2] + 0
            text = $0; sub(/^[^:]*:[^:]*:[ \t]*/, "", text)
            if (count == "-") next
            lines++
            if (count ~ /^[#=]/) print "line", file ":" name, line, text
        }
        END { print "total", file, lines + 0, branches + 0 }' "$scratch/text" >>"$scratch/report"
done
touch "$scratch/report"

allow=tests/coverage.allow
[ -e $allow ] || allow=/dev/null
awk -v allow=$allow '
    BEGIN {
        while ((getline entry < allow) > 0) {
            if (entry ~ /^(#|$)/) continue
            if (entry !~ /^[^: ]+:[^: ]+: [0-9]+ lines, [0-9]+ branches: ./) {
                print "coverage: not understood in the list: " entry; bad++; continue
            }
            split(entry, part, ":"); key = part[1] ":" part[2]
            listed[key] = 1
            split(part[3], word, " "); lines[key] = word[1] + 0; branches[key] = word[3] + 0
        }
    }
    $1 == "total" { order[++files] = $2; all_lines[$2] = $3; all_branches[$2] = $4; next }
    {
        key = $2; file = key; sub(/:.*/, "", file)
        if ($1 == "line") { missed_lines[key]++; file_lines[file]++ }
        else { missed_branches[key]++; file_branches[file]++ }
        place = $3; kind = $1; $1 = $2 = $3 = ""
        if (!(key in seen)) found[++keys] = key
        seen[key] = seen[key] sprintf("    %s:%s: %s not reached: %s\n", file, place, kind, $0)
    }
    function percent(missed, all) { return all ? 100 * (all - missed) / all : 100 }
    END {
        for (i = 1; i <= files; i++) {
            f = order[i]
            printf "coverage: %-24s lines %6.2f %% of %4d, branches %6.2f %% of %4d\n", f,
                percent(file_lines[f], all_lines[f]), all_lines[f],
                percent(file_branches[f], all_branches[f]), all_branches[f]
        }
        for (i = 1; i <= keys; i++) {
            key = found[i]
            if (missed_lines[key] + 0 != lines[key] + 0 ||
                missed_branches[key] + 0 != branches[key] + 0) {
                printf "coverage: %s: %d lines, %d branches are not reached%s\n%s", key,
                    missed_lines[key], missed_branches[key],
                    key in listed ? ", the list says otherwise" : "", seen[key]
                bad++
            } else
                good++
        }
        for (key in listed)
            if (!(key in seen) && lines[key] + branches[key] > 0) {
                print "coverage: " key ": listed, but everything is reached"; bad++
            }
        printf "%d passed, %d failed, 0 skipped\n", files + good, bad
        exit bad > 0
    }' "$scratch/report"

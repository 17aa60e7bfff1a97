#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Conversions in parts under what people start processes with: Open MPI, a Slurm job array, srun,
# and by hand, in any order, with parts that are killed. Whatever happens on the way, the files are
# those of one process, and nothing else is left in the folder.
#
#   tests/interop/parts.sh     after make; run by `make interop`
#
# Needs mpirun and a Slurm of its own (tests/deps.sh install ci); skips what is not there.
set -u
here=$(cd "$(dirname "$0")" && pwd)
berth=${BERTH:-$here/../../build/berth}
berth=$(readlink -f "$berth")
build=${BERTH_BUILD:-$(dirname "$berth")}
passed=0 failed=0 skipped=0
# shellcheck source=tests/interop/slurm.sh
. "$here/slurm.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/berth-parts.XXXXXX") || exit 1
# Daemons and their children are known by this, whoever their parent is by now.
BERTH_PARTS_WORK=$work
export BERTH_PARTS_WORK
# Nothing of a launcher that this script itself may run under.
for name in $(env | sed -n 's/^\(\(SLURM\|OMPI\|PMI\|PMIX\|JOB_COMPLETION\)[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

leftovers()
(
    unset BERTH_PARTS_WORK # of what looks for it
    grep -lsz "^BERTH_PARTS_WORK=$work\$" /proc/[0-9]*/environ | cut -d/ -f3
)

# What was told to end does so within 5 s.
none_is_left()
{
    for _ in $(seq 50); do
        [ -n "$(leftovers)" ] || return 0
        sleep 0.1
    done
    for process in $(leftovers); do
        tr '\0' ' ' <"/proc/$process/cmdline"
    done
    return 1
}

clean()
{
    trap - EXIT
    stop_slurm
    for process in $(leftovers); do
        kill -9 "$process" 2>/dev/null
    done
    wait
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

check() # WHAT CONDITION...: what the condition prints is shown if it does not hold
{
    what=$1
    shift
    if "$@" >"$work/shown" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 20 "$work/shown" | sed 's/^/    /'
    fi
}

skip() # WHAT WHY
{
    skipped=$((skipped + 1))
    echo "skipped: $1: $2"
}

# ---- models --------------------------------------------------------------------------------------

# What a conversion is called, below alone/ too, and its arguments without OUT: a list.
conversion()
{
    case $1 in
    nf4) echo "quantize $work/model" --type nf4 --double-quant ;;
    few) echo "quantize $work/model" --type nf4 --double-quant --max-shard-size 3MB ;;
    many) echo "quantize $work/model" --type nf4 --double-quant --max-shard-size 400KB ;;
    fp4) echo "quantize $work/model" --type fp4 ;;
    int8) echo "quantize $work/model" --type int8 --max-shard-size 4MB ;;
    back) echo "dequantize $work/alone/many" --max-shard-size 6MB ;;
    tiny) echo "quantize $work/tiny" --type nf4 ;;
    large) echo "quantize $work/large" --type nf4 --double-quant ;;
    esac
}

# part_of NAME OUT OPTION...: one process of several, or all of it. What is to be killed is begun by
# begin_part, so that no shell stands in between.
part_of()
{
    name=$1
    shift
    # shellcheck disable=SC2046 # a list
    "$berth" $(conversion "$name") "$@"
}

begin_part() # NAME OUT OPTION...: sets $pid
{
    name=$1
    shift
    # shellcheck disable=SC2046
    "$berth" $(conversion "$name") "$@" >/dev/null 2>&1 &
    pid=$!
}

make_models()
{
    "$build/tests/make_model" "$work/model" --layers 4 --hidden 320 --inner 832 --vocab 2048 \
        --heads 5 --kv-heads 5 --shards 3 &&
        "$build/tests/make_model" "$work/tiny" --layers 1 --shards 1 &&
        "$build/tests/make_model" "$work/large" --layers 4 --hidden 1024 --inner 2816 \
            --vocab 16000 --heads 8 --kv-heads 4 --shards 2 || return 1
    mkdir "$work/alone"
    for name in nf4 few many fp4 int8 back tiny large; do
        part_of $name "$work/alone/$name" -q || return 1
    done
}

# The same files with the same bytes.
same() # NAME OUT
{
    diff -r "$work/alone/$1" "$2"
}

count_shards() # NAME FEWEST MOST
{
    set -- "$1" "$2" "$3" "$(find "$work/alone/$1" -name '*.safetensors' | wc -l)"
    echo "$1: $4 shards"
    [ "$4" -ge "$2" ] && [ "$4" -le "$3" ]
}

check_layouts()
{
    check "nf4 is one file" count_shards nf4 1 1
    check "fewer shards than parts" count_shards few 2 3
    check "more shards than parts" count_shards many 5 99
}

# ---- Open MPI ------------------------------------------------------------------------------------

under_mpirun() # NAME OUT PROCESSES
{
    # shellcheck disable=SC2046 # a list
    timeout 60 mpirun -n "$3" --oversubscribe --allow-run-as-root --bind-to none \
        "$berth" $(conversion "$1") "$2" --part auto
}

try_mpirun()
{
    if ! command -v mpirun >/dev/null 2>&1; then
        skip "Open MPI" "mpirun is not installed: tests/deps.sh install ci"
        return
    fi
    rm -rf "$work/out"
    for name in nf4 few many fp4 int8 back tiny; do
        check "$name by 4 processes of mpirun" under_mpirun $name "$work/out" 4
        check "$name by mpirun is that of one process" same $name "$work/out"
        rm -rf "$work/out"
    done
    check "by 7 processes" under_mpirun few "$work/out" 7
    check "7 processes make what one does" same few "$work/out"
    check "one of them put it together" \
        test "$(under_mpirun nf4 "$work/joined" 3 | grep -c 'put together by')" = 1
    rm -rf "$work/out" "$work/joined"
}

# ---- Slurm ---------------------------------------------------------------------------------------

# submit SCRIPT_LINE TASKS OPTION...: all tasks of the job must end well. Their environment comes
# from Slurm and from nowhere else.
submit()
{
    rm -rf "$work/out" "$work"/job-*.log
    printf '#!/bin/sh\n%s\necho "exit code $?"\n' "$1" >"$work/job.sh"
    tasks=$2
    shift 2
    timeout 10 sbatch --parsable --output="$work/job-%a.log" --export=NONE "$@" "$work/job.sh" &&
        await_slurm || return 1
    cat "$work"/job-*.log
    [ "$(cat "$work"/job-*.log | grep -cx 'exit code 0')" = "$tasks" ]
}

command_line() # NAME
{
    echo "'$berth' $(conversion "$1") '$work/out' --part auto"
}

in_array() # NAME TASKS INDEXES
{
    submit "$(command_line "$1")" "$2" --array="$3" && same "$1" "$work/out"
}

as_steps()
{
    submit "srun --export=ALL $(command_line few)" 1 --ntasks=3 && same few "$work/out"
}

# The script is no task: it must not take itself for the first of three.
as_script()
{
    ! submit "$(command_line few)" 1 --ntasks=3 || return 1
    ! [ -e "$work/out" ] && grep -q 'start berth with srun' "$work"/job-*.log
}

try_slurm()
{
    if ! has_slurm; then
        skip "Slurm" "it is not installed: tests/deps.sh install ci"
        return
    fi
    mkdir "$work/slurm"
    if ! start_slurm "$work/slurm" >"$work/shown" 2>&1; then
        skip "Slurm" "its daemons do not start here"
        sed 's/^/    /' "$work/shown"
        return
    fi
    check "a job array" in_array nf4 4 0-3
    check "a job array of other indexes, two at a time" in_array many 4 10-40:10%2
    check "tasks of srun" as_steps
    check "the script of a job of several tasks" as_script
    check "Slurm ends" stop_slurm
}

# ---- by hand -------------------------------------------------------------------------------------

in_order() # NAME PARTS COUNT
{
    rm -rf "$work/out"
    for part in $2; do
        part_of "$1" "$work/out" --part "$part/$3" || return 1
    done
    same "$1" "$work/out"
}

at_once() # NAME COUNT
{
    rm -rf "$work/out"
    pids=
    for part in $(seq "$2"); do
        part_of "$1" "$work/out" --part "$part/$2" &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || return 1
    done
    same "$1" "$work/out"
}

as_pods()
{
    rm -rf "$work/out"
    for index in 2 0 1; do
        (
            JOB_COMPLETION_INDEX=$index
            export JOB_COMPLETION_INDEX
            part_of few "$work/out" --part auto/3
        ) || return 1
    done
    same few "$work/out"
}

# Joining what is not finished says what is missing, and changes nothing.
joins_when_all_are_there()
{
    rm -rf "$work/out"
    part_of few "$work/out" --part 3/3 && part_of few "$work/out" --part 1/3 || return 1
    part_of few "$work/out" --part 3 --join
    [ $? -eq 3 ] || return 1
    ! [ -e "$work/out/config.json" ] || return 1
    part_of few "$work/out" --part 2/3 && same few "$work/out"
}

try_orders()
{
    for name in nf4 few many; do
        check "$name, one after the other" in_order $name "1 2 3 4" 4
        check "$name, backwards" in_order $name "4 3 2 1" 4
        check "$name, mixed" in_order $name "2 4 1 3" 4
        check "$name, two at once" at_once $name 2
    done
    check "one part" in_order few 1 1
    check "more parts than there is work" in_order tiny "$(seq -s ' ' 12)" 12
    check "five at once" at_once back 5
    check "an indexed job of Kubernetes" as_pods
    check "joining before all are finished" joins_when_all_are_there
}

# ---- kill -9 -------------------------------------------------------------------------------------

# Kills a part once it has begun, DELAY seconds later; tries again where it had finished by then and
# had written its record.
killed_midway() # PART COUNT DELAY
{
    for delay in "$3" 0.02 0.01 0 0 0; do
        rm -rf "$work/out"
        begin_part large "$work/out" --part "$1/$2"
        while [ -z "$(ls -A "$work/out" 2>/dev/null)" ] && kill -0 $pid 2>/dev/null; do
            :
        done
        sleep "$delay"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        [ $? -ne 137 ] || [ -n "$(find "$work/out" -name "*-0000$1-of-*.json")" ] || return 0
    done
    echo "it was never hit"
    return 1
}

# A part dies, the others end; it is run again alone.
one_dies() # DELAY
{
    killed_midway 2 4 "$1" || return 1
    for part in 4 1 3; do
        part_of large "$work/out" --part $part/4 || return 1
    done
    ! [ -e "$work/out/config.json" ] || return 1
    part_of large "$work/out" --part 2/4 --resume && same large "$work/out"
}

# All are at work, and one dies, or does nothing for a while: the others wait for no length of its.
one_dies_among() # DELAY
{
    rm -rf "$work/out"
    pids=
    for part in 1 3 4; do
        begin_part large "$work/out" --part $part/4
        pids="$pids $pid"
    done
    begin_part large "$work/out" --part 2/4
    sleep "$1"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    for pid in $pids; do
        wait "$pid" || return 1
    done
    [ -e "$work/out/config.json" ] || part_of large "$work/out" --part 2/4 --resume || return 1
    same large "$work/out"
}

one_stops_among()
{
    rm -rf "$work/out"
    begin_part large "$work/out" --part 1/2
    stopped=$pid
    kill -STOP "$stopped"
    part_of large "$work/out" --part 2/2 || return 1
    kill -CONT "$stopped"
    wait "$stopped" && same large "$work/out"
}

# Places are known where parts take turns: nobody has to put the shard together again.
none_is_copied()
{
    rm -rf "$work/out"
    begin_part large "$work/out" --part 1/2
    BERTH_LOG=debug part_of large "$work/out" --part 2/2 >"$work/told" 2>&1 || return 1
    wait $pid && same large "$work/out" || return 1
    cat "$work/told"
    ! grep -q 'is copied' "$work/told"
}

begins_anew()
{
    killed_midway 1 2 0.02 || return 1
    part_of large "$work/out" --part 2/2 || return 1
    part_of large "$work/out" --part 1/2 --force && same large "$work/out"
}

# The last part dies anywhere, often while it puts all of them together.
last_one_dies() # DELAY
{
    rm -rf "$work/out"
    part_of large "$work/out" --part 1/2 || return 1
    begin_part large "$work/out" --part 2/2
    sleep "$1"
    kill -9 $pid 2>/dev/null && hits=$((hits + 1))
    wait $pid 2>/dev/null
    part_of large "$work/out" --part 2/2 --resume || return 1
    same large "$work/out"
}

try_kills()
{
    check "a part that died is run again" one_dies 0
    check "a part that died later is run again" one_dies 0.03
    for delay in 0 0.02 0.05 0.1; do
        check "a part dies after $delay s among others" one_dies_among $delay
    done
    check "a part stops before it has begun" one_stops_among
    check "parts take turns at one shard" none_is_copied
    check "a part that died is begun anew" begins_anew
    hits=0
    for delay in 0.02 0.06 0.1 0.14 0.18 0.22 0.26 0.3; do
        check "the last part dies after $delay s" last_one_dies $delay
    done
    echo "note: the last part was killed $hits of 8 times before its end"
}

# ---- all of it -----------------------------------------------------------------------------------

check "models and what one process makes of them" make_models
if [ "$failed" -eq 0 ]; then
    check_layouts
    try_orders
    try_kills
    try_mpirun
    try_slurm
    check "no process is left" none_is_left
fi
echo "t: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

# SPDX-License-Identifier: Apache-2.0
# What the cases of tests/cli share.
# shellcheck shell=sh

# flip FILE OFFSET: another byte at this place
flip()
{
    old=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf %o $((old ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# raw FILE HEADER BYTES: a safetensors file with this header and zeros behind it
raw()
{
    n=$(printf %s "$2" | wc -c)
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\\0\\0\\0\\0\\0\\0" >"$1"
    printf %s "$2" >>"$1"
    head -c "$3" /dev/zero >>"$1"
}

# as_hub MODEL: from here on it is $snapshot of a hub cache, in ./hub, and its weights are blobs
as_hub()
{
    home=hub/models--org--name
    snapshot=$home/snapshots/0123456789abcdef0123456789abcdef01234567
    mkdir -p $home/snapshots $home/blobs && mv "$1" $snapshot
    for file in "$snapshot"/*.safetensors; do
        blob=$(sha256sum "$file" | cut -d ' ' -f 1)
        mv "$file" "$home/blobs/$blob" && ln -s "../../blobs/$blob" "$file"
    done
}

# Times and rates differ from run to run.
hide_times()
{
    sed -E 's/"(seconds)": [0-9.]+/"\1": T/; s/"(io_path)": "[^"]*"/"\1": "PATH"/'
}

# The same of what is converted; how many bytes are read depends on the files' way to memory.
hide_rates()
{
    sed -E 's/^io  .*/io  .../; s/; [0-9.]+ [KMG]iB of memory/; M of memory/' |
        sed -E 's/[0-9.]+ [KMG]iB of disk \([0-9.]+ [KMGT]iB free\)/D of disk (... free)/' |
        sed -E -e 's/"((read_|convert_|write_)?seconds|bytes_read)": [0-9.]+/"\1": N/' \
            -e 's/"(planned_memory|output_bytes|free_bytes)": [0-9.]+/"\1": N/' |
        sed -E 's/"(bottleneck|io_path)": "[^"]*"/"\1": "..."/'
}

# on_terminal COLUMNS COMMAND: what a terminal of this width would get, escapes made visible
on_terminal()
{
    command -v script >/dev/null || { echo "no script(1)"; exit 77; }
    TERM=xterm script -qec "stty cols $1; $2" /dev/null </dev/null | tr -d '\r' |
        sed "s/$(printf '\033')/<ESC>/g"
}

# signalled SIGNAL COMMAND...: which gets the signal when it has begun its job, which has threads;
# a shell's own children in the background would not see an INT
signalled()
{
    signal=$1
    shift
    env --default-signal="$signal" "$@" &
    while [ "$(find "/proc/$!/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -eq 1 ]; do
        sleep 0.01
    done
    kill -s "$signal" $!
    wait $!
}

# Where the configurations of published models are; $1 is this file.
configs=${1%/cli/helpers.sh}/data/configs

# config NAME: a folder with nothing but its config.json
config()
{
    mkdir -p "$1" && cp "$configs/$1.json" "$1/config.json"
}

# What of a load's report differs from run to run; the peak of host memory decides on how wide
# its column is.
hide_load()
{
    tiers='tier|cpu|cuda:[0-9]+|disk' peaks='peak|-|[0-9.]+ [KMG]?i?B'
    sed -E -e 's/^io  .*/io  .../' -e 's/"(([a-z]*_)?seconds)": [0-9.]+/"\1": N/' \
        -e 's/"(bytes_read|host_memory|host_memory_peak)": [0-9]+/"\1": N/' \
        -e '/"name": "cpu"/,/}/s/"peak": [0-9]+/"peak": N/' \
        -e 's/"(bottleneck|bottleneck_tier|io)": ("[^"]*"|null)/"\1": "..."/' |
        sed -E -e "s/^($tiers)( .*[^ ]) +($peaks)  ([^ ].*)/\1\2 \3 \4/" \
            -e 's/^(cpu .*) [0-9.]+ [KMG]iB (host memory)/\1 N \2/'
}

# The same of one that did not fit: what there is of host memory, which not every machine
# tells, and what of it was used.
hide_refusal()
{
    size='[0-9.]*[1-9][0-9.]* [KMGT]?i?B'
    sed -E -e "s/(this process can have) $size/\1 N/" \
        -e 's/^  cpu takes .* of staging$/&, this process can have N/' \
        -e '/"name": "cpu"/,/}/s/"has": ([0-9]+|null)/"has": N/' \
        -e '/"tier": "cpu",/,/}/s/"(current|peak|allocated|freed)": [1-9][0-9]*/"\1": N/' |
        awk -v size=" +$size" '/^[^ ]/ { is_account = /^cpu +[a-z]+ +[0-9]/ }
            is_account { gsub(size, " N") } { print }'
}

# limited KIB: from here on this process gets no more memory
limited()
{
    # A sanitizer takes more than any limit.
    (ulimit -d "$1" && exec berth --version) >/dev/null 2>&1 || {
        echo "a sanitizer needs more memory than any limit"
        exit 77
    }
    tells_memory
    ulimit -d "$1"
}

# Or the case is skipped.
tells_memory()
{
    if berth devices --json | grep -q '"available": null'; then
        echo "this machine does not tell how much memory a process can have"
        exit 77
    fi
}

# What differs from run to run of what is measured, and from machine to machine.
hide_bench()
{
    number='[0-9]+' real='[0-9.e+-]+'
    sed -E -e "s/\"(bytes_per_second|before|after|bytes|bytes_read)\": $number/\"\1\": N/" \
        -e "s/\"(host_waits|passes|threads|drifted|host_memory_peak)\": $number/\"\1\": N/" \
        -e "s/\"(drift|([a-z]*_)?seconds)\": $real/\"\1\": N/" \
        -e 's/"(words|io|bottleneck|bottleneck_tier)": ("[^"]*"|null)/"\1": "..."/' |
        awk '{ held = held $0 "\n" }
             /"words"/ { if (held != last) printf "%s", held; last = held; held = "" }
             END { printf "%s", held }'
}

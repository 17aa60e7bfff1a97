#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a build asks of a CUDA toolkit, with a stand-in for one: nothing is compiled.
# Run by `make check` (CC, if it is for this machine, and the other settings come from there).
set -u
export LC_ALL=C
# A make of our own: not a part of the one that runs the tests.
unset MAKEFLAGS MAKELEVEL MFLAGS ARCH
# Builds for another machine have no CUDA.
case $(${CC:-cc} -dumpmachine) in
"$(uname -m)"-*) ;;
*) unset CC ;;
esac
# shellcheck source=tests/t.sh
. tests/t.sh
toolkit=$scratch/toolkit
mkdir -p "$toolkit/bin" "$toolkit/lib64"
: >"$toolkit/lib64/libcudart_static.a"
# It says what stands in the files plan, codes and release.
cat >"$toolkit/bin/nvcc" <<SCRIPT
#!/bin/sh
case \$1 in
--dryrun) cat "$toolkit/plan" >&2 ;;
--list-gpu-code) cat "$toolkit/codes" ;;
--version) echo "Cuda compilation tools, release \$(cat "$toolkit/release"), V1" ;;
esac
SCRIPT
chmod +x "$toolkit/bin/nvcc"

its_make()
{
    make CUDA=1 NVCC="$toolkit/bin/nvcc" "$@"
}

# asks_for GOAL ARGUMENT...: of what make would do for it there is each line of the standard input.
asks_for()
{
    its_make -n V=1 "$@" >"$scratch/commands" || return 1
    while read -r line; do
        grep -qF -- "$line" "$scratch/commands" || {
            echo "there is no \"$line\""
            return 1
        }
    done
}

# Which files of kernels are compiled.
compiles() # FILES ARGUMENT...
{
    files=$1
    shift
    its_make -n V=1 cuda-kernels "$@" >"$scratch/commands" || return 1
    [ "$files" = "$(sed -n 's|.* kernels/\(.*\)\.cu$|\1|p' "$scratch/commands" | sort | xargs)" ]
}

# One file that is told of them.
object() # ARGUMENT...
{
    echo "$(its_make -s where "$@")/release/kernels/cuda_runtime.o"
}

refuses() # WORDS
{
    its_make -n >/dev/null 2>"$scratch/errors" && return 1
    grep -qF -- "$1" "$scratch/errors"
}

leaves_it_out()
{
    make -n CUDA=auto NVCC="$toolkit/bin/nvcc" >"$scratch/commands" || return 1
    ! grep -qF cuda_runtime "$scratch/commands"
}

echo "#\$ TOP=$toolkit" >"$toolkit/plan"
printf 'sm_%s\n' 75 80 86 89 90 100 103 120 121 >"$toolkit/codes"
echo 13.0 >"$toolkit/release"
check "all that are built where nobody says so" asks_for "$(object)" <<'LINES'
-DBERTH_CUDA_ARCHITECTURES=75,80,90,100,120
-DBERTH_CUDA_PTX=100,120
-DBERTH_CUDA_WIDE=90
LINES
check "their kernels" compiles "kernel_cuda kernel_wide"
check "without those of 9.0" compiles kernel_cuda ARCH="75 80"

mixed="120 sm_90 100 75 90"
check "architectures in any order" asks_for "$(object ARCH="$mixed")" ARCH="$mixed" <<'LINES'
-DBERTH_CUDA_ARCHITECTURES=75,90,100,120
-DBERTH_CUDA_PTX=100,120
LINES
check "code for them" asks_for cuda-kernels ARCH="$mixed" <<'LINES'
code=sm_75 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=sm_100
code=sm_120 -gencode arch=compute_100,code=compute_100 -gencode arch=compute_120,code=compute_120
LINES

printf 'sm_%s\n' 50 70 75 80 86 89 90 >"$toolkit/codes"
echo 12.4 >"$toolkit/release"
check "a toolkit that has not all of them" asks_for "$(object)" <<'LINES'
-DBERTH_CUDA_ARCHITECTURES=75,80,90
-DBERTH_CUDA_PTX=90
-DBERTH_CUDA_WIDE=90
LINES
check "what it has not, but is asked for" asks_for cuda-kernels ARCH=100 <<'LINES'
-gencode arch=compute_100,code=sm_100
LINES
echo 11.8 >"$toolkit/release"
check "a toolkit that knows nothing of sm_90a" compiles kernel_cuda
: >"$toolkit/codes"
check "a toolkit that does not tell" asks_for "$(object)" <<'LINES'
-DBERTH_CUDA_ARCHITECTURES=75,80,90,100,120
LINES

# As Debian, and Ubuntu, pack it.
mkdir "$scratch/system"
: >"$scratch/system/libcudart_static.a"
cat >"$toolkit/plan" <<LINES
#\$ _HERE_=/usr/lib/nvidia-cuda-toolkit/bin
#\$ LIBRARIES=  -L$scratch/system/stubs -L$scratch/system
LINES
check "a toolkit without a folder" asks_for install <<LINES
 $scratch/system/libcudart_static.a -lrt -ldl -lm -pthread|g'
LINES
check "its headers are the system's" asks_for "$(object)" <<'LINES'
-DBERTH_HAVE_CUDA -DBERTH_CUDA_ARCHITECTURES=
LINES
echo 11.5 >"$toolkit/release"
check "a toolkit that is too old" refuses "$toolkit/bin/nvcc is of CUDA 11.5: install the toolkit"
check "it is left out where it may be" leaves_it_out
echo 11.8 >"$toolkit/release"
mkdir -p "$toolkit/targets/machine/include" "$toolkit/targets/machine/lib"
mv "$toolkit/lib64/libcudart_static.a" "$toolkit/targets/machine/lib"
cat >"$toolkit/plan" <<LINES
#\$ TOP=$toolkit/bin/..
#\$ INCLUDES="-I$toolkit/targets/machine/include"
#\$ LIBRARIES=  "-L$toolkit/targets/machine/lib/stubs" "-L$toolkit/targets/machine/lib"
LINES
check "folders of one kind of machine" asks_for install <<LINES
 $toolkit/targets/machine/lib/libcudart_static.a -lrt -ldl -lm -pthread|g'
LINES
check "its headers" asks_for "$(object)" <<LINES
-DBERTH_HAVE_CUDA -isystem $toolkit/targets/machine/include -DBERTH_CUDA_ARCHITECTURES=
LINES
mv "$toolkit/targets/machine/lib/libcudart_static.a" "$toolkit/lib64"
echo "#\$ TOP=$toolkit" >"$toolkit/plan"

# No linker knows the toolkit's folder.
check "the runtime for programs with the static library" asks_for install <<LINES
 $toolkit/lib64/libcudart_static.a -lrt -ldl -lm -pthread|g'
LINES
end

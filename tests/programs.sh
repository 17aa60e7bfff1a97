#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How test programs are run: the one table of it, for the Makefile and for scripts.
#
#   tests/programs.sh WORD     the programs that have the word, without their test_
#
# A program that is not in the table runs in every stage, beside others. The words:
#
#   alone                measures how long something takes, or what the whole machine does: runs
#                        after the others, by itself; T_CLOCK=0 leaves it out
#   waits                waits most of its time, and says that something ends in time: runs beside
#                        the others, one after the other; T_CLOCK=0 leaves it out
#   slow                 runs for minutes, kills and failures by the thousand, or makes the largest
#                        headers: check-fast leaves it out
#   slow-unless-address  the same, but for the address sanitizer, which alone sees such damage
#   slow-under-thread    the same, with the thread sanitizer: what it converts at random meets the
#                        same threads as what test_convert_order converts
#   threadless           starts no thread: the thread sanitizer has nothing to see there. Threads of
#                        the tool have tests of their own, as programs
#   coverage             is about files as berth reads and writes them: the others reach nothing
#                        more of what `make coverage` counts
#   valgrind             parsers: run once more where uninitialized bytes are seen
#   arm                  arithmetic: `make check-arm` runs it, and `make check-arithmetic`
#   arm-plain            on a processor without products of four 8-bit numbers at once, too
#   gpu                  kernels: a device runs them, too
set -u

awk -v word="${1:-}" '
    { for (i = 2; i <= NF; i++) if ($i == word) { print $1; found = 1 } }
    END {
        if (!found) print "programs.sh: no program has the word \"" word "\"" | "cat >&2"
        exit !found
    }' <<'TABLE'
adapt                threadless
architecture         threadless
base                 threadless arm
bench                alone
big_headers          alone slow threadless
budget               threadless
bytes_agree          threadless
catalogue            threadless coverage
checkpoint           coverage
checkpoint_faults    threadless coverage
chunks               threadless
classify             threadless coverage
classify_4bit        threadless coverage
classify_golden      threadless coverage
classify_int8        threadless coverage
classify_scaled      threadless coverage
config               threadless coverage valgrind
config_values        threadless coverage
config_write         threadless coverage valgrind
convert              coverage
convert_crash        slow
convert_kept         coverage
convert_notes        threadless
convert_overlap      alone
convert_random       slow-under-thread
convert_stale        coverage
coverage             threadless
cpu                  threadless arm arm-plain
crcs                 threadless
cuda_multiply        threadless
cuda_open            threadless
cut                  threadless coverage
decoder_attend       threadless
decoder_steps        threadless
dequantize           threadless arm
dequantize_sources   threadless arm
device_cuda          threadless
device_cuda_context  threadless
device_cuda_memory   threadless
device_cuda_operations threadless
device_decode        threadless
device_decoder       threadless
device_experts       threadless
device_int8          threadless
device_int8_input    threadless
device_map           threadless coverage
device_multiply      threadless
device_plain         threadless
device_update        threadless
device_write         threadless
devices_api          coverage
digest               threadless
digits               threadless
draw                 threadless
draw_pages           threadless
draw_words           threadless
duration             threadless
escape               threadless coverage
estimate             threadless
estimate_api         threadless
estimate_ending      threadless coverage
estimate_files       threadless
estimate_fit         threadless
estimate_headers     threadless coverage
estimate_kinds       threadless coverage
estimate_layers      threadless coverage
estimate_open        threadless
estimate_refuse      threadless coverage
estimate_shape       threadless coverage
estimate_tokens      threadless
fault_count          slow-unless-address
fault_places         slow-unless-address
findings             coverage
format               threadless coverage arm
gemm                 threadless
gemm_faults          threadless
gemm_order           threadless
gemm_rooms           threadless
golden_open          coverage
gradient             threadless arm
grow                 threadless
header_details       threadless coverage
heapsort             threadless coverage
home                 threadless
home_ranges          threadless
home_shapes          threadless
host                 threadless arm arm-plain
host_api             threadless
host_groups          threadless
hub                  threadless coverage
hub_cache            threadless coverage
hung                 waits
hung_copies          waits
hung_failed          waits
hung_moves           waits
imitate              threadless coverage
imitate_recorded     threadless
index                threadless coverage valgrind
index_write          threadless coverage
int8                 threadless arm arm-plain
job                  waits
journal              coverage valgrind
json                 threadless coverage valgrind
json_text            threadless coverage valgrind
kernel_crc32         threadless
kernel_double        threadless
kernel_levels        threadless arm
kernel_nan           threadless
kernel_product       threadless arm
kernel_scalar        threadless arm
kernel_source        threadless arm
launch               threadless
layout               threadless coverage
layout_golden        threadless coverage
layout_header        threadless coverage
lease_courier        waits
lease_disk           waits
lease_disk_faults    waits
lease_expert         threadless
lease_expert_bytes   waits
lease_hung           waits
lease_meanwhile      waits
lease_unpinned       waits
link                 threadless coverage
llama_config         threadless
llama_file           threadless
llama_math           threadless
load_blocks          coverage
load_cycles          slow
load_errors          waits
load_rank_stacks     coverage
load_slices          coverage
locate               threadless coverage
manifest             threadless coverage valgrind
map_entries          threadless
members              threadless coverage
move_errors          waits
nameless             threadless
nvlink               threadless
operands             threadless
optimizer            threadless arm
optimizer_levels     threadless arm
output               coverage
output_dead          coverage
output_existing      coverage
pages                threadless
parallel             threadless
part_crash           slow
part_waits           coverage
paths                threadless coverage
pattern              threadless coverage
pci                  threadless
plan                 threadless coverage
plan_bound           threadless coverage
plan_check           threadless coverage
plan_experts         threadless coverage
plan_follow          threadless coverage
plan_given           threadless coverage
plan_json            threadless coverage
plan_layers          threadless coverage
plan_make            threadless coverage
plan_map             threadless coverage
plan_predict         threadless coverage
plan_refused         threadless coverage
plan_stay            threadless coverage
plan_summary         threadless coverage
plan_train           threadless coverage
plan_train_json      threadless coverage
plan_train_map       threadless coverage
plan_train_pass      threadless coverage
plan_train_refused   threadless coverage
preflight            threadless
procfs               threadless
quantize             threadless arm
quantize_golden      threadless arm
recipe               threadless coverage
reciprocal           threadless
recorded_codes       threadless
rules                threadless coverage
rules_file           threadless coverage valgrind
safetensors          threadless coverage valgrind
scan                 threadless coverage valgrind
server               waits
server_swap          waits
sha256               threadless
side_files           threadless coverage
sim_random           threadless
sim_real             alone
sim_words            threadless
simt
simt_decoder                    gpu
simt_earlier
simt_experts                    gpu
simt_few                        gpu
simt_int8                       gpu
simt_int8_output                gpu
simt_kernels                    gpu
simt_plain                      gpu
simt_product                    gpu
simt_race
simt_ring                       gpu
simt_together                   gpu
simt_update                     gpu
simt_wide                       gpu
simt_wide_machine
size                 threadless coverage
slab                 threadless
sniff                threadless coverage
sort                 threadless coverage
source               coverage
stacks               coverage
state                threadless coverage valgrind
state_print          threadless coverage valgrind
states               threadless coverage
states_stay          threadless coverage
stored               threadless coverage valgrind
stream_groups        threadless
stream_run           threadless
stream_settle        threadless
swap_contexts        waits
tier_list            threadless coverage
tools_advice         threadless
tools_cli            threadless
tools_coverage       threadless
tools_devices        threadless
tools_diff           threadless
tools_generate       threadless
tools_input          threadless
tools_inspect        threadless
tools_load           threadless
tools_part           threadless
tools_report         threadless
tools_tree           threadless
train                threadless
train_advice         threadless
train_refused        threadless
utf8                 threadless coverage arm
values               arm arm-plain
values_product       arm arm-plain
verify               coverage
verify_blobs         coverage
writer               coverage
writer_crash         slow
writer_files         coverage
writer_parts         coverage
writer_publish       coverage
writer_resume        coverage
writer_table         threadless coverage
TABLE

# SPDX-License-Identifier: Apache-2.0
# berth: the only build file. `make help` lists the targets and variables.
#
# Sources are found by wildcard. Objects lie in build/<hash>/, where the hash stands for the
# compiler and everything else that can change an object: switching compilers, sanitizers or flags
# needs no clean. Within it
#   release/   library and tool as they are installed
#   testing/   the library once more with -DBERTH_TESTING (fault switch, counters), and the tests
# build/berth, build/libberth.a and build/libberth.so are links to the variant that was built last.
#
#: make                 library, tool, man pages and completions, in build/
#: make demo            a small model: inspected, damaged, loaded, quantized, killed, resumed,
#:                      adapted
#: make check           every test; check-fast leaves out the installation and programs that run
#:                      for minutes: kills and failures by the thousand, the largest headers;
#:                      T_CLOCK=0 those, too, that hold something against the clock
#: make check-one T=M   tests/test_M alone; ARGS=WORD runs only its tests whose name contains WORD
#: make check-arithmetic    the tests of the arithmetic alone, as for another compiler
#: make check-arm       the arithmetic of AArch64 and the tool, built for it, run by an emulator
#: make san             every test under sanitizers (SAN=address,undefined unless given)
#: make cuda            compiles the kernels for every architecture; no spills, instructions counted
#: make gpu-check       builds for the GPU that is there, tests and measures it, within 8 minutes;
#:                      build/gpu-check/report.html. DEPS=FOLDER: sources of libraries to build
#: make lint            layers, exported names, header dialects, static analysis
#: make interop         the reference implementations as oracles (Python, in its own environments),
#:                      conversions in parts under Open MPI and Slurm
#: make fuzz            the fuzz targets with libFuzzer (clang), in build/fuzz/
#: make soak            runs them for EXECUTIONS inputs in all (45,000,000)
#: make coverage        lines and branches of the parsers that the tests reach
#: make bench           speeds against measured limits, into build/bench.json
#: make deps            installs what the build needs with the system's package manager
#: make install, make uninstall      below DESTDIR and PREFIX (/usr/local)
#: make dist, make clean
#:
#: CC, CFLAGS, LDFLAGS  the compiler and what it is given beyond berth's own flags
#: SAN=LIST             address,undefined or thread or (with CC=clang) memory
#: URING, LIBDEFLATE    auto: used where present; 1: must be present; 0: left out
#: CUDA                 the same of a toolkit of CUDA 11.8 or later, for GPUs as devices; 0 unless
#:                      given
#: BUILD_CC             the compiler of programs that the build runs (CC; cc where CC makes code for
#:                      another machine)
#: EMULATOR             runs programs of another machine (qemu-MACHINE)
#: NVCC, ARCH           the CUDA compiler; GPUs with machine code of their own (what it knows of
#:                      "75 80 90 100 120")
#: WERROR=0             warnings are no errors; V=1 shows the commands

SHELL := /bin/sh
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules --no-print-directory
# All cores, unless -j is given or another make has given it.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

# ---- what the user may set ---------------------------------------------------------------------

CFLAGS ?= -O2 -g
BUILD_CC ?= $(if $(CROSS),cc,$(CC))
NVCC ?= nvcc
PKG_CONFIG ?= pkg-config
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
CMAKEDIR = $(LIBDIR)/cmake/berth
COMPLETIONS = $(DATADIR)/bash-completion/completions/berth.bash \
    $(DATADIR)/zsh/site-functions/_berth $(DATADIR)/fish/vendor_completions.d/berth.fish
# The first of each generation: later ones of it run the same code, and what is later than all of
# them the PTX of the last. Those of 11 (Jetson Thor), which toolkits before CUDA 13 have by another
# number, the PTX of 100, which costs 0.8 MB and no time.
ARCH ?= 75 80 90 100 120
# auto: used where present; 1: must be present; 0: left out
CUDA ?= 0
URING ?= auto
LIBDEFLATE ?= auto
SAN ?=
WERROR ?= 1
V ?= 0
# set by the targets coverage and fuzz: counted lines and branches, libFuzzer's instrumentation
COVERAGE ?= 0
FUZZER ?= 0

comma := ,
empty :=
Q := $(if $(filter 1,$(V)),,@)
# make -s says nothing but what the programs say.
SILENT := $(findstring s,$(filter-out --%,$(firstword $(MAKEFLAGS))))
say = $(if $(filter 1,$(V)),,@$(if $(SILENT),,echo '  $(1)'; ))

$(foreach name,CUDA URING LIBDEFLATE,$(if $(filter-out auto 0 1,$($(name))),\
    $(error $(name)=$($(name)): give auto, 1 or 0)))

# ---- sources -----------------------------------------------------------------------------------

VERSION := $(shell awk '/^.define BERTH_VERSION_(MAJOR|MINOR|PATCH) / \
    { printf "%s%s", dot, $$3; dot = "." }' loader/berth.h)
# The machine that CC makes code for: where it is not this one, its libraries are those that
# Debian keeps beside ours (as in tests/deps.sh), and an emulator runs its programs.
BUILD_MACHINE := $(shell uname -m)
MACHINE := $(or $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null))),$(BUILD_MACHINE))
CROSS := $(filter-out $(BUILD_MACHINE),$(MACHINE))
ifneq ($(CROSS),)
PKG_CONFIG_LIBDIR ?= /usr/lib/$(MACHINE)-linux-gnu/pkgconfig
EMULATOR ?= qemu-$(MACHINE)
# `env`, since the shell function knows nothing of exported variables.
at_libraries := env PKG_CONFIG_LIBDIR='$(PKG_CONFIG_LIBDIR)'
EMULATOR_FOUND := $(shell command -v $(firstword $(EMULATOR)) 2>/dev/null)
endif

CUDA_KERNELS := $(wildcard kernels/*.cu)
# Kernels belong to the library with the device that launches them; `make cuda` compiles them alone.
# Those of sm_90a are for GPUs of 9.0 alone.
ARCHITECTURES := $(shell printf '%s\n' $(patsubst sm_%,%,$(ARCH)) | sort -nu)
# GPUs of 11 run no code of 10, and no PTX for 12.
PTX_ARCHITECTURES = $(filter 100,$(filter-out $(lastword $(ARCHITECTURES)),$(ARCHITECTURES))) \
    $(lastword $(ARCHITECTURES))
WIDE_KERNELS := kernels/kernel_wide.cu
# Toolkits before CUDA 12 know nothing of sm_90a.
WIDE = $(if $(filter 11.%,$(NVCC_RELEASE)),,$(filter 90,$(ARCHITECTURES)))
CUDA_SOURCES = $(if $(wildcard kernels/cuda_runtime.c),$(filter-out \
    $(if $(WIDE),,$(WIDE_KERNELS)),$(CUDA_KERNELS)) kernels/cuda_runtime.c)
FOREIGN := $(if $(filter x86_64,$(MACHINE)),,%_avx2.c %_avx512.c %_avx512vbmi.c %_avx512bf16.c \
    %_amx.c) $(if $(filter aarch64,$(MACHINE)),,%_neon.c %_neondot.c)
LAYERS := kernels quant placement loader
# Programs that the build itself runs: they write C files into $(B)/generated/.
GENERATORS := $(wildcard $(LAYERS:=/generate_*.c))
LIB_SOURCES := $(sort $(filter-out $(FOREIGN) $(CUDA_KERNELS) $(CUDA_SOURCES) $(GENERATORS),\
    $(wildcard $(LAYERS:=/*.c))))
LLAMA_SOURCES := $(sort $(wildcard tools/llama*.c))
TOOL_SOURCES := $(filter-out $(LLAMA_SOURCES),$(sort $(wildcard tools/*.c)))
# What both programs say of a load that does not fit, how they read numbers and the clock, and
# make files.
SHARED_SOURCES := $(addprefix tools/,$(addsuffix .c,clock descriptors draft interrupt json \
    json_error load_advice load_memory load_refuse load_tier number output))
TEST_SOURCES := $(sort $(wildcard tests/*.c))
TESTS := $(basename $(notdir $(filter tests/test_%,$(TEST_SOURCES))))
MAKERS := $(basename $(notdir $(filter tests/make_%,$(TEST_SOURCES))))
# What is measured on a GPU; with a fake one it is a test.
GPU_SOURCES := $(filter-out %/probe.c,$(sort $(wildcard tests/gpu/*.c)))
HELPERS := $(filter-out tests/test_% tests/make_%,$(TEST_SOURCES)) \
    $(filter-out %/gpu_check.c %/machine_cuda.c,$(GPU_SOURCES))
FUZZERS := $(basename $(notdir $(sort $(wildcard tests/fuzz/fuzz_*.c))))
BENCHES := $(filter-out bench,$(basename $(notdir $(sort $(wildcard tests/bench/*.c)))))

# ---- what is missing on this machine -----------------------------------------------------------
# The goals of a fresh machine install it and start again; others stop here, before compiling.

IDLE_GOALS := help deps clean uninstall dist gpu-check
SETUP_GOALS := demo check check-fast
GOALS := $(or $(MAKECMDGOALS),all)
MISSING := $(if $(filter-out $(IDLE_GOALS),$(GOALS)),$(shell CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' \
    URING=$(URING) LIBDEFLATE=$(LIBDEFLATE) sh tests/deps.sh missing))
ifneq ($(MISSING),)
ifneq ($(filter-out $(SETUP_GOALS) $(IDLE_GOALS),$(GOALS)),)
$(error These packages are missing: $(MISSING). `make deps` installs them)
else ifdef BERTH_SETUP
$(error These packages are still missing after `make deps`: $(MISSING))
endif
endif

.PHONY: all cuda cuda-kernels gpu-check gpu-programs check check-fast check-builds \
    check-fast-builds check-one check-programs check-arithmetic check-arithmetic-builds \
    check-arm compiled san demo lint interop bench fuzz soak fuzz-programs coverage coverage-run \
    coverage-ahead coverage-builds where install uninstall deps dist clean help FORCE

ifneq ($(MISSING),)

.NOTPARALLEL:
$(filter $(SETUP_GOALS),$(GOALS)): deps
	@$(MAKE) BERTH_SETUP=1 $@

else # everything is there: from here to the end of the compiling rules

# ---- CUDA --------------------------------------------------------------------------------------
# nvcc is looked for only when it is wanted and there is something to compile with it.

ifneq ($(if $(filter 1,$(CUDA)),1,$(and $(filter auto,$(CUDA)),$(CUDA_SOURCES))),)
NVCC_FOUND := $(if $(CROSS),,$(or $(shell command -v $(NVCC) 2>/dev/null),\
    $(and $(filter nvcc,$(NVCC)),$(wildcard /usr/local/cuda/bin/nvcc))))
# Where the toolkit lies nvcc knows best: what is called so may be a script. That of a distribution
# may have no folder (TOP), but the system's.
NVCC_FOLDERS := $(if $(NVCC_FOUND),$(subst ",,$(shell $(NVCC_FOUND) --dryrun \
    -c kernels/kernel_cuda.cu 2>&1 | sed -n -e 's/^\#\$$ TOP=/-T/p' -e 's/^\#\$$ INCLUDES=//p' \
    -e 's/^\#\$$ LIBRARIES=//p')))
CUDA_HOME := $(patsubst -T%,%,$(filter -T%,$(NVCC_FOLDERS)))
CUDA_INCLUDES := $(or $(patsubst -I%,%,$(filter -I%,$(NVCC_FOLDERS))),$(CUDA_HOME:=/include))
CUDART := $(firstword $(wildcard $(addsuffix /libcudart_static.a,$(CUDA_HOME:=/lib64) \
    $(CUDA_HOME:=/lib) $(patsubst -L%,%,$(filter -L%,$(NVCC_FOLDERS))))))
ifeq ($(CUDA)$(and $(NVCC_FOUND),$(CUDART)),1)
$(error CUDA=1, but no $(NVCC) with libcudart_static.a was found: install the CUDA toolkit, give \
    NVCC=/path/to/nvcc, or build with CUDA=0)
endif
NVCC_RELEASE := $(if $(NVCC_FOUND),$(shell $(NVCC_FOUND) --version | \
    sed -n 's/.*release \([0-9.]*\).*/\1/p'))
# Launches that overlap came with CUDA 11.8.
NVCC_OLD := $(filter 9.% 10.% $(addprefix 11.,0 1 2 3 4 5 6 7),$(NVCC_RELEASE))
ifeq ($(CUDA)$(if $(NVCC_OLD),,1),1)
$(error CUDA=1, but $(NVCC_FOUND) is of CUDA $(NVCC_RELEASE): install the toolkit of 11.8 or \
    later, give NVCC=/path/to/nvcc, or build with CUDA=0)
endif
endif
ifneq ($(if $(NVCC_OLD),,$(and $(NVCC_FOUND),$(CUDART),$(CUDA_SOURCES))),)
# What nobody has chosen is what this toolkit has: before CUDA 12.8 none knew 100 and 120.
NVCC_HAS := $(if $(filter file default,$(origin ARCH)),$(patsubst sm_%,%,\
    $(shell $(NVCC_FOUND) --list-gpu-code 2>/dev/null)))
ARCHITECTURES := $(if $(NVCC_HAS),$(filter $(NVCC_HAS),$(ARCHITECTURES)),$(ARCHITECTURES))
CUDA_FLAGS := $(strip -DBERTH_HAVE_CUDA $(addprefix -isystem ,$(CUDA_INCLUDES)) \
    -DBERTH_CUDA_ARCHITECTURES=$(subst $(empty) $(empty),$(comma),$(strip $(ARCHITECTURES))) \
    -DBERTH_CUDA_PTX=$(subst $(empty) $(empty),$(comma),$(strip $(PTX_ARCHITECTURES))) \
    $(if $(WIDE),-DBERTH_CUDA_WIDE=90))
CUDA_LIBS := $(CUDART) -lrt
# Without those of -Xcompiler the objects drag in the C++ runtime.
NVCC_CODE := $(foreach a,$(ARCHITECTURES),-gencode arch=compute_$(a)$(comma)code=sm_$(a)) \
    $(foreach a,$(PTX_ARCHITECTURES),-gencode arch=compute_$(a)$(comma)code=compute_$(a))
nvcc_code = $(if $(filter $(WIDE_KERNELS),$<),-gencode arch=compute_90a$(comma)code=sm_90a,\
    $(NVCC_CODE))
NVCC_FLAGS := -O2 -I. -fmad=false --threads 0 \
    -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
LIB_SOURCES += $(CUDA_SOURCES)
CUDA_WORD := $(NVCC_FOUND)
else
CUDA_WORD := $(if $(filter 0,$(CUDA)),left out,\
    no nvcc of CUDA 11.8 or later with libcudart_static.a found)
endif

# ---- libraries ---------------------------------------------------------------------------------

link = $(if $(filter-out 0,$(1)),$(shell CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' \
    sh tests/deps.sh link lib$(2) $(2)))
URING_LINK := $(call link,$(URING),uring)
DEFLATE_LINK := $(call link,$(LIBDEFLATE),deflate)
CJSON_FLAGS := $(shell $(at_libraries) $(PKG_CONFIG) --cflags libcjson 2>/dev/null)
LIBS := $(URING_LINK) $(DEFLATE_LINK) \
    $(shell $(at_libraries) $(PKG_CONFIG) --libs libcjson zlib 2>/dev/null) $(CUDA_LIBS) \
    -ldl -lm -pthread
# For programs that link the installed libberth.a: the same libraries by name, but for the
# toolkit's, whose folder no linker knows.
PRIVATE_LIBS := $(foreach lib,$(LIBS),$(if $(filter $(or $(CUDART),none) -%,$(lib)),$(lib),\
    $(patsubst lib%.a,-l%,$(notdir $(lib)))))
link_word = $(if $(1),$(if $(filter %.a,$(1)),static,shared),no)

# ---- flags -------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
    $(if $(filter 1,$(WERROR)),-Werror)
INSTRUMENT := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
    $(if $(filter 1,$(FUZZER)),-fsanitize=fuzzer-no-link) \
    $(if $(filter 1,$(COVERAGE)),--coverage -O0)
# -ffp-contract=off stands last: how a number is rounded is not the user's or the compiler's choice.
ALL_CFLAGS := -std=c11 $(WARNINGS) -I. $(CPPFLAGS) -fPIC -fvisibility=hidden -pthread \
    $(CFLAGS) $(INSTRUMENT) -ffp-contract=off
ALL_LDFLAGS := $(LDFLAGS) $(INSTRUMENT) -pthread

COMPILER := $(shell $(CC) --version 2>/dev/null | head -n 1)
HASH := $(shell printf '%s\n' '$(CC) $(COMPILER) $(MACHINE) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LIBS)' \
    '$(CJSON_FLAGS) $(CUDA_FLAGS) $(NVCC_FOUND) $(NVCC_FLAGS) $(NVCC_CODE)' | cksum | cut -d' ' -f1)
B := build/$(HASH)

# Tests make up weights, and look for them again, in memory that no other thread knows: up to a
# quarter of a test's time, were it watched. Nor is what runs the lanes of kernels, which are.
UNWATCHED := $(if $(filter thread,$(SAN)),-fno-sanitize=thread)
UNWATCHED_SOURCES := $(addprefix tests/,weights.c simt.c simt_wide.c simt_race.c)
# What one file gets beyond the others: its instruction set, or the library that only it includes.
file_flags = $(if $(filter %_avx2.c,$<),-mavx2 -mfma -mf16c)$(if \
    $(filter %_avx512.c %_avx512vbmi.c %_avx512bf16.c %_amx.c,$<),-mavx512f -mavx512bw -mavx512vl \
    -mavx512dq -mfma -mf16c)$(if $(filter %_avx512vbmi.c,$<), -mavx512vbmi)$(if \
    $(filter %_avx512bf16.c,$<), -mavx512bf16)$(if \
    $(filter %_amx.c,$<), -mamx-tile -mamx-bf16)$(if \
    $(filter %_neondot.c,$<),-march=armv8.2-a+dotprod)$(if \
    $(filter quant/json.c,$<),$(CJSON_FLAGS))$(if \
    $(filter tools/llama_math.c,$<),-O3)$(if \
    $(filter $(UNWATCHED_SOURCES),$<),$(UNWATCHED))$(if \
    $(filter loader/reader_uring.c,$<),$(if $(URING_LINK),-DBERTH_HAVE_URING))$(if \
    $(filter kernels/digest.c,$<),$(if $(DEFLATE_LINK),-DBERTH_HAVE_LIBDEFLATE))$(if \
    $(filter kernels/device.c kernels/cuda_runtime.c %/machine_cuda.c,$<),$(CUDA_FLAGS))

# ---- compiling ---------------------------------------------------------------------------------

objects = $(addsuffix .o,$(addprefix $(B)/$(1)/,$(basename $(2))))
RELEASE := $(call objects,release,$(LIB_SOURCES)) $(B)/release/generated/architectures.o
TESTING := $(call objects,testing,$(LIB_SOURCES)) $(B)/testing/generated/architectures.o
TOOL := $(call objects,release,$(TOOL_SOURCES))
LLAMA := $(call objects,release,$(LLAMA_SOURCES) $(if $(LLAMA_SOURCES),$(SHARED_SOURCES)))
TEST_HELPERS := $(call objects,testing,$(HELPERS))
BENCH_HELPERS := $(call objects,release,$(wildcard tests/bench/bench.c))
TEST_PROGRAMS := $(addprefix $(B)/tests/,$(TESTS))
MAKER_PROGRAMS := $(addprefix $(B)/tests/,$(MAKERS))
REPLAY_PROGRAMS := $(addprefix $(B)/replay/,$(FUZZERS))
FUZZ_PROGRAMS := $(addprefix $(B)/fuzz/,$(FUZZERS))
BENCH_PROGRAMS := $(addprefix $(B)/bench/,$(BENCHES))
GPU_OBJECTS := $(call objects,release,$(filter-out %/machine_fake.c,$(GPU_SOURCES)) \
    tests/gpu/read_all.cu)
# Those of test programs that have a word of how they are run.
programs = $(addprefix $(B)/tests/test_,$(shell tests/programs.sh $(1)))
# What fuzz targets have in common with tests; nothing of the tool, which takes long with libFuzzer.
FUZZ_HELPERS := $(call objects,testing,$(addprefix tests/,$(addsuffix .c,fixture header_case laid \
    mapped opened sim_printed t tensors)))
# And of the library, without what only begins when something has been read: a quarter. A target
# that comes to need some of that does not link.
UNFUZZED := $(addprefix loader/,bench% compute% convert% conveyor% diff% estimate_api% lease% \
    load.c load_% move% part% recipe% verify% writer%)
FUZZED := $(call objects,testing,$(filter-out $(UNFUZZED),$(LIB_SOURCES))) \
    $(B)/testing/generated/architectures.o
# What a test may call, in the order a linker wants it.
TEST_ARCHIVES := $(B)/libtest.a $(B)/libtools.a $(B)/libberth-testing.a

cc_flags = $(ALL_CFLAGS) $(file_flags) $(1) -MMD -MP
compile = $(call say,CC $<)mkdir -p $(@D) && $(CC) $(call cc_flags,$(1)) -c -o $@ $<
# Most files of the library say the same with -DBERTH_TESTING and without. What the compiler would
# read has a sum: where that is the sum of the twin, the other folder's object, its object will do.
twin = $(patsubst $(B)/$(1)/%,$(B)/$(2)/%,$@)
compile_once = $(call say,CC $<)mkdir -p $(@D) && rm -f $@.sum && \
    sum=$$($(CC) $(call cc_flags,$(1)) -MT $@ -MF $(@:.o=.d) -E $< | sha256sum) && \
    if [ "$$sum" = "$$(cat $(2).sum 2>/dev/null)" ]; then cp $(2) $@; \
    else $(CC) $(call cc_flags,$(1)) -c -o $@ $<; fi && echo "$$sum" >$@.sum
archive = $(call say,AR $@)rm -f $@ && $(AR) rcD $@ $(filter %.o,$^)
# Test programs are hundreds, and all of the library is in each: the quickest linker that is there,
# unless the user has chosen one, or what nvcc has compiled is linked.
QUICK_LINK := $(if $(findstring -fuse-ld,$(CC) $(LDFLAGS))$(CUDA_FLAGS),,$(shell \
    echo 'int main(void) { return 0; }' | $(CC) $(LDFLAGS) -fuse-ld=lld -x c -o /dev/null - \
    2>/dev/null && echo -fuse-ld=lld))
program = $(call say,LD $@)mkdir -p $(@D) && \
    $(CC) $(ALL_LDFLAGS) $(1) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)

$(B)/release/%.o: %.c
	$(call compile)
$(B)/testing/%.o: %.c
	$(call compile,-DBERTH_TESTING)
# The shorter rest of a name is the better rule for make.
define rules_of_layer
$(B)/release/$(1)/%.o: $(1)/%.c
	$$(call compile_once,,$$(call twin,release,testing))
$(B)/testing/$(1)/%.o: $(1)/%.c
	$$(call compile_once,-DBERTH_TESTING,$$(call twin,testing,release))
endef
# Counts of lines belong to one object.
$(if $(filter 1,$(COVERAGE)),,$(foreach layer,$(LAYERS),$(eval $(call rules_of_layer,$(layer)))))
# Kernels know nothing of tests, and take longer than everything else.
$(B)/release/%.o: %.cu
	$(call say,NVCC $<)mkdir -p $(@D) && \
	    $(NVCC_FOUND) $(NVCC_FLAGS) $(nvcc_code) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(addprefix $(B)/testing/,$(CUDA_KERNELS:.cu=.o)): $(B)/testing/%.o: $(B)/release/%.o
	$(Q)mkdir -p $(@D) && cp $< $@

# The generator gets no sanitizer and none of the user's flags: it runs here and now.
$(B)/generated/generate_architectures: quant/generate_architectures.c quant/catalogue.c \
    quant/scan.c quant/scan_number.c kernels/utf8.c \
    $(wildcard kernels/float_mode.h quant/catalogue.h quant/scan.h)
	$(call say,BUILD $@)mkdir -p $(@D) && $(BUILD_CC) -std=c11 $(WARNINGS) -O1 -I. -o $@ \
	    $(filter %.c,$^) -lm
$(B)/generated/architectures.c: quant/architectures.json $(B)/generated/generate_architectures
	$(call say,GENERATE $@)$(B)/generated/generate_architectures <$< >$@
$(B)/release/generated/%.o: $(B)/generated/%.c
	$(call compile)
$(B)/testing/generated/%.o: $(B)/generated/%.c
	$(call compile,-DBERTH_TESTING)

# An archive is made anew when the list of its sources changes, so that a deleted file leaves it.
$(B)/sources: FORCE
	$(Q)mkdir -p $(@D) && new=$@.$$$$ && \
	    echo '$(LIB_SOURCES) $(TOOL_SOURCES) $(LLAMA_SOURCES) $(HELPERS)' >$$new && \
	    { cmp -s $$new $@ || cp $$new $@; } && rm $$new
$(B)/libberth.a: $(RELEASE) $(B)/sources
	$(archive)
$(B)/libberth-testing.a: $(TESTING) $(B)/sources
	$(archive)
$(B)/libtools.a: $(filter-out %/main.o %/llama.o,$(sort $(TOOL) $(LLAMA))) $(B)/sources
	$(archive)
$(B)/libtest.a: $(TEST_HELPERS) $(B)/sources
	$(archive)
$(B)/libfuzzed.a: $(FUZZED) $(B)/sources
	$(archive)

SONAME := libberth.so.$(firstword $(subst ., ,$(VERSION)))
# A sanitizer's runtime is undefined in a shared library until a program brings it.
SHARED := -shared -Wl,-soname,$(SONAME) -Wl,--version-script=loader/berth.map \
    $(if $(strip $(INSTRUMENT)),,-Wl$(comma)-z$(comma)defs)
$(B)/libberth.so.$(VERSION): $(RELEASE) loader/berth.map
	$(call program,$(SHARED))
	$(Q)ln -sf $(@F) $(B)/$(SONAME) && ln -sf $(SONAME) $(B)/libberth.so

$(B)/berth: $(TOOL) $(B)/libberth.a
	$(call program)
$(B)/berth-llama: $(LLAMA) $(B)/libberth.a
	$(call program)
$(B)/tests/%: $(B)/testing/tests/%.o $(TEST_ARCHIVES)
	$(call program,$(QUICK_LINK))
$(B)/replay/%: $(B)/testing/tests/fuzz/%.o $(B)/testing/tests/fuzz/replay.o $(TEST_ARCHIVES)
	$(call program,$(QUICK_LINK))
$(B)/fuzz/%: $(B)/testing/tests/fuzz/%.o $(FUZZ_HELPERS) $(B)/libfuzzed.a
	$(call program,-fsanitize=fuzzer $(QUICK_LINK))
$(B)/gpu/gpu_check: $(GPU_OBJECTS) $(B)/libberth.a
	$(call program)
# A limit is measured by a program without any of berth in it.
$(B)/bench/limit_%: $(B)/release/tests/bench/limit_%.o
	$(call program)
$(B)/bench/%: $(B)/release/tests/bench/%.o $(BENCH_HELPERS) $(B)/libberth.a
	$(call program)
.SECONDARY:

-include $(wildcard $(B)/*/*/*.d $(B)/*/*/*/*.d)

PRODUCTS := $(if $(LIB_SOURCES),$(B)/libberth.a) \
    $(if $(wildcard loader/berth.map),$(B)/libberth.so.$(VERSION)) \
    $(if $(wildcard tools/main.c),$(B)/berth) $(if $(LLAMA_SOURCES),$(B)/berth-llama)
# The tool itself writes some of them.
DOCS := $(if $(wildcard tools/main.c),$(if $(CROSS),$(if $(EMULATOR_FOUND),$(B)/docs),$(B)/docs))

ifneq ($(if $(MAKELEVEL:0=)$(SILENT),,$(filter all check demo install,$(GOALS))),)
$(info berth $(VERSION): $(COMPILER)$(if $(SAN),$(comma) sanitizers $(SAN)); \
    liburing: $(call link_word,$(URING_LINK)), libdeflate: $(call link_word,$(DEFLATE_LINK)), \
    CUDA: $(CUDA_WORD))
endif

all: $(PRODUCTS) $(DOCS)
	$(Q)for f in $(notdir $(PRODUCTS)) $(if $(filter %.so.$(VERSION),$(PRODUCTS)),$(SONAME) \
	    libberth.so) $(if $(DOCS),man completions); do ln -sfn $(HASH)/$$f build/$$f; done

# Man pages and completions come from the tool's own option tables.
$(B)/docs: $(B)/berth loader/berth.h $(wildcard tools/man/*)
	$(Q)rm -rf $(B)/man $(B)/completions && mkdir -p $(B)/man $(B)/completions
	$(Q)for page in $(wildcard tools/man/*.[1-8]); do \
	    sed 's/^\.Os$$/.Os berth $(VERSION)/' $$page >$(B)/man/$${page##*/} || exit 1; done
	$(Q)$(EMULATOR) $(B)/berth --generate-man $(B)/man loader/berth.h
	$(Q)$(EMULATOR) $(B)/berth --generate-completions $(B)/completions
	$(Q)touch $@

# ---- tests -------------------------------------------------------------------------------------
# Scripts learn from these where the build lies and how it was made.

export CC CFLAGS LDFLAGS SAN CUDA URING LIBDEFLATE WERROR PKG_CONFIG VERSION
export BERTH := $(CURDIR)/$(B)/berth
export BERTH_BUILD := $(CURDIR)/$(B)
export BERTH_LIBS := $(LIBS)
# A failed allocation is a status for berth, so it must be NULL for the sanitizer.
export ASAN_OPTIONS ?= allocator_may_return_null=1
export TSAN_OPTIONS ?= allocator_may_return_null=1
export UBSAN_OPTIONS ?= print_stacktrace=1

CHECK_SCRIPTS := $(wildcard tests/cli/run.sh tests/readme.sh tests/cuda_test.sh \
    tests/toolkit_test.sh tests/gpu/check_test.sh tests/gpu/deps_test.sh)
ifeq ($(SAN),thread)
CHECK_PROGRAMS := $(filter-out $(call programs,threadless),$(TEST_PROGRAMS))
# What the tool prints is the same under any sanitizer.
CHECK_SCRIPTS :=
else
CHECK_PROGRAMS := $(TEST_PROGRAMS) $(REPLAY_PROGRAMS)
CHECK_SCRIPTS += tests/install_test.sh
ifneq ($(SAN),)
# These are about other scripts, and a program that only measures.
CHECK_SCRIPTS := $(filter-out tests/cuda_test.sh tests/toolkit_test.sh tests/gpu/%,\
    $(CHECK_SCRIPTS))
endif
endif
# Only scripts look at what would be installed.
CHECK_PRODUCTS := $(if $(CHECK_SCRIPTS),$(PRODUCTS) $(DOCS))
CHECK_BUILDS := $(CHECK_PRODUCTS) $(CHECK_PROGRAMS) $(MAKER_PROGRAMS)
SLOW_PROGRAMS := $(call programs,slow) \
    $(if $(findstring address,$(SAN)),,$(call programs,slow-unless-address)) \
    $(if $(filter thread,$(SAN)),$(call programs,slow-under-thread))
FAST_PROGRAMS := $(filter-out $(SLOW_PROGRAMS),$(CHECK_PROGRAMS))

check: $(if $(CHECK_SCRIPTS),all) check-builds
	$(Q)tests/run.sh $(CHECK_PROGRAMS) $(CHECK_SCRIPTS)
check-fast: $(if $(CHECK_SCRIPTS),all) check-fast-builds
	$(Q)tests/run.sh $(FAST_PROGRAMS) $(filter-out %/install_test.sh,$(CHECK_SCRIPTS))
# What they run, and no links to it in build/: other flags may be at work beside.
check-builds: $(CHECK_BUILDS)
check-fast-builds: $(filter-out $(SLOW_PROGRAMS),$(CHECK_BUILDS))
check-one: $(B)/tests/test_$(T) $(MAKER_PROGRAMS)
	$(Q)$(T_WRAP) $< $(ARGS)
check-programs: $(TEST_PROGRAMS) $(REPLAY_PROGRAMS)
# Every source that this compiler can read.
compiled: $(filter-out $(call objects,release,$(CUDA_KERNELS)),$(RELEASE)) $(TOOL) $(LLAMA) \
    $(filter-out $(call objects,testing,$(CUDA_KERNELS)),$(TESTING)) \
    $(call objects,release,$(wildcard tests/bench/*.c)) \
    $(call objects,testing,$(TEST_SOURCES) $(wildcard tests/fuzz/*.c) \
    $(filter-out %/machine_cuda.c,$(wildcard tests/gpu/*.c)))
# What another compiler makes of the same sources shows in the bits of the arithmetic.
ARITHMETIC_PROGRAMS := $(call programs,arm)
check-arithmetic: $(ARITHMETIC_PROGRAMS)
	$(Q)tests/run.sh $(ARITHMETIC_PROGRAMS)
check-arithmetic-builds: $(ARITHMETIC_PROGRAMS)
check-arm: $(B)/berth $(B)/tests/make_model
	$(Q)tests/arm/check.sh
san:
	$(Q)$(MAKE) SAN=$(or $(SAN),address$(comma)undefined) check

demo: all $(MAKER_PROGRAMS)
	$(Q)tests/demo.sh
# Need nvcc alone, no device: the library's kernels as they are in it; and judged, ARCHS="sm_90 ..."
# for some of them.
cuda-kernels: $(call objects,release,$(filter %.cu,$(CUDA_SOURCES)))
cuda:
	$(Q)NVCC='$(NVCC)' ARCH='$(ARCHITECTURES)' ARCHS='$(ARCHS)' tests/cuda.sh \
	    $(B)/cuda || [ $$? -eq 77 ]
gpu-check:
	$(Q)MAKE='$(MAKE)' NVCC='$(NVCC)' ARCH='$(if $(filter file default,$(origin ARCH)),,$(ARCH))' \
	    tests/gpu/check.sh build/gpu-check || [ $$? -eq 77 ]
gpu-programs: $(B)/berth $(B)/berth-llama $(B)/gpu/gpu_check $(B)/bench/make_shapes \
    $(call programs,gpu)
lint: $(PRODUCTS) $(DOCS)
	$(Q)LIB_SOURCES='$(LIB_SOURCES)' tests/lint.sh
# The longest first: none is left over for one core at the end.
INTEROP_KINDS := train estimate quantize compare plan llama map dlpack
interop: all $(MAKER_PROGRAMS)
	$(Q)BERTH_PYTHON=$$(tests/interop/venv.sh) && export BERTH_PYTHON && \
	    { BERTH_MODELS_PYTHON=$$(tests/interop/venv.sh models) || :; } && \
	    export BERTH_MODELS_PYTHON && \
	    tests/run.sh $(foreach kind,$(INTEROP_KINDS),$(wildcard tests/interop/$(kind)_*.py)) \
	    tests/interop/parts.sh
bench: all $(BENCH_PROGRAMS) $(MAKER_PROGRAMS)
	$(Q)NVCC='$(NVCC)' ARCHS='$(ARCHS)' tests/bench/run.sh

FUZZ_CC ?= clang
fuzz:
	$(Q)$(MAKE) CC=$(FUZZ_CC) FUZZER=1 SAN=address$(comma)undefined fuzz-programs
fuzz-programs: $(FUZZ_PROGRAMS)
	$(Q)ln -sfn $(HASH)/fuzz build/fuzz
soak: fuzz
	$(Q)tests/soak.sh
COVERAGE_PROGRAMS := $(call programs,coverage) $(REPLAY_PROGRAMS)
# Without optimization intrinsics are macros, and their conversions warn.
coverage:
	$(Q)$(MAKE) CC=gcc COVERAGE=1 WERROR=0 coverage-run
coverage-ahead:
	$(Q)$(MAKE) CC=gcc COVERAGE=1 WERROR=0 coverage-builds
coverage-run: coverage-builds
	$(Q)tests/coverage.sh $(COVERAGE_PROGRAMS)
coverage-builds: $(COVERAGE_PROGRAMS) $(MAKER_PROGRAMS)
# Where the objects of these flags lie, for scripts.
where:
	@echo $(B)

# ---- installing --------------------------------------------------------------------------------

# Blanks in DESTDIR belong to it: `uninstall` removes what lies below, and nothing else.
stage = $(subst $(empty) ,\ ,$(DESTDIR))
# The rest of a path has none: no user of berth.pc could have it.
refuse_blanks = $(foreach name,PREFIX BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR,\
    $(if $(word 2,$($(name))),$(error $(name) has a blank in it: "$($(name))")))
# The package files are filled in for the place they are installed to, wherever they are read.
fill = sed -e 's|@PREFIX@|$(abspath $(PREFIX))|g; s|@LIBDIR@|$(abspath $(LIBDIR))|g' \
    -e 's|@INCLUDEDIR@|$(abspath $(INCLUDEDIR))|g' \
    -e 's|@VERSION@|$(VERSION)|g; s|@SONAME@|$(SONAME)|g' \
    -e 's|@PRIVATE_LIBS@|$(strip $(PRIVATE_LIBS))|g' \
    -e "s|@INCLUDE_FROM_LIB@|$$(realpath -ms --relative-to='$(LIBDIR)' '$(INCLUDEDIR)')|g"

install: all
	$(refuse_blanks)
	$(Q)install -d $(addprefix $(stage),$(BINDIR) $(INCLUDEDIR) $(LIBDIR)/pkgconfig $(CMAKEDIR) \
	    $(addprefix $(MANDIR)/man,1 3 5) $(dir $(COMPLETIONS)))
	$(Q)install -m 644 loader/berth.h $(stage)$(INCLUDEDIR)/berth.h
	$(Q)install -m 644 $(B)/libberth.a $(stage)$(LIBDIR)/libberth.a
	$(Q)install -m 755 $(B)/libberth.so.$(VERSION) $(stage)$(LIBDIR)/libberth.so.$(VERSION)
	$(Q)ln -sf libberth.so.$(VERSION) $(stage)$(LIBDIR)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(stage)$(LIBDIR)/libberth.so
	$(Q)install -m 755 $(B)/berth $(B)/berth-llama $(stage)$(BINDIR)/
	$(Q)$(fill) loader/berth.pc.in >$(stage)$(LIBDIR)/pkgconfig/berth.pc
	$(Q)for f in berth-config berth-config-version; do \
	    $(fill) loader/$$f.cmake.in >$(stage)$(CMAKEDIR)/$$f.cmake || exit 1; done
	$(Q)chmod 644 $(addprefix $(stage),$(LIBDIR)/pkgconfig/berth.pc \
	    $(CMAKEDIR)/berth-config.cmake $(CMAKEDIR)/berth-config-version.cmake)
	$(Q)for n in 1 3 5; do for page in $(B)/man/*.$$n; do \
	    [ ! -e $$page ] || install -m 644 $$page $(stage)$(MANDIR)/man$$n/; done; done
	$(Q)for file in $(COMPLETIONS); do [ ! -e $(B)/completions/$${file##*/} ] || \
	    install -m 644 $(B)/completions/$${file##*/} $(stage)$$file; done
	@$(if $(SILENT),,echo 'installed berth $(VERSION) below $(DESTDIR)$(PREFIX)')

endif # nothing is missing

uninstall:
	$(refuse_blanks)
	$(Q)rm -f $(addprefix $(stage),$(BINDIR)/berth $(BINDIR)/berth-llama \
	    $(INCLUDEDIR)/berth.h $(LIBDIR)/libberth.a \
	    $(LIBDIR)/libberth.so $(LIBDIR)/libberth.so.* $(LIBDIR)/pkgconfig/berth.pc \
	    $(MANDIR)/man1/berth.1 $(MANDIR)/man1/berth-*.1 $(MANDIR)/man3/berth.3 \
	    $(MANDIR)/man5/berth-*.5 $(COMPLETIONS))
	$(Q)rm -rf $(stage)$(CMAKEDIR)
deps:
	$(Q)CC='$(CC)' URING=$(URING) LIBDEFLATE=$(LIBDEFLATE) sh tests/deps.sh install
# The same commit gives the same bytes: git takes the time of every file from it.
dist:
	$(Q)mkdir -p build && git archive --format=tar --prefix=berth-$(VERSION)/ HEAD | \
	    gzip -n -9 >build/berth-$(VERSION).tar.gz
	@echo 'build/berth-$(VERSION).tar.gz'
clean:
	$(Q)rm -rf build
help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

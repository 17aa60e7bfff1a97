# SPDX-License-Identifier: Apache-2.0
# berth: the only build file. `make help` lists the targets and variables.
#
# Sources are found by wildcard. Objects lie in build/<hash>/, where the hash stands for the compiler and everything
# else that can change an object: switching compilers, sanitizers or flags needs no clean. Within it
#   release/   library and tool as they are installed
#   testing/   the library once more with -DBERTH_TESTING (fault switch, counters), and what the tests are made of
# build/berth, build/libberth.a and build/libberth.so are links to the variant that `make` built last.

SHELL := /bin/sh
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules --no-print-directory

# ---- what the user may set -----------------------------------------------------------------------------------------

CFLAGS ?= -O2 -g
NVCC ?= nvcc
PKG_CONFIG ?= pkg-config
PREFIX ?= /usr/local
# auto: used where present; 1: must be present; 0: left out
CUDA ?= auto
URING ?= auto
LIBDEFLATE ?= auto
# address,undefined or thread or, with CC=clang, memory
SAN ?=
# 0: warnings are no errors
WERROR ?= 1
# 1: count lines and branches; 1: libFuzzer's instrumentation; 1: show the commands
COVERAGE ?= 0
FUZZER ?= 0
V ?= 0

$(foreach name,CUDA URING LIBDEFLATE,$(if $(filter-out auto 0 1,$($(name))),\
    $(error $(name)=$($(name)): give auto, 1 or 0)))

# ---- sources -------------------------------------------------------------------------------------------------------

VERSION := $(shell awk '/^.define BERTH_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $$3; dot = "." }' \
    loader/berth.h)
MACHINE := $(shell uname -m)

CUDA_SOURCES := $(wildcard kernels/*.cu kernels/device_cuda.c kernels/gemm_lt.c)
FOREIGN := $(if $(filter x86_64,$(MACHINE)),,%_avx2.c %_avx512.c) $(if $(filter aarch64,$(MACHINE)),,%_neon.c)
LIB_SOURCES := $(sort $(filter-out $(FOREIGN) $(CUDA_SOURCES),$(wildcard $(addsuffix /*.c,kernels quant placement loader))))
TOOL_SOURCES := $(sort $(wildcard tools/*.c))
TEST_SOURCES := $(sort $(wildcard tests/*.c))
TESTS := $(basename $(notdir $(filter tests/test_%,$(TEST_SOURCES))))
MAKERS := $(basename $(notdir $(filter tests/make_%,$(TEST_SOURCES))))
HELPERS := $(filter-out tests/test_% tests/make_%,$(TEST_SOURCES))
FUZZERS := $(basename $(notdir $(sort $(wildcard tests/fuzz/fuzz_*.c))))
BENCHES := $(basename $(notdir $(sort $(wildcard tests/bench/*.c))))

# ---- what is missing on this machine -------------------------------------------------------------------------------
# The goals of a fresh machine install it and start again; others stop here, before anything is compiled.

IDLE_GOALS := help deps clean uninstall dist
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

.PHONY: all check check-fast check-one lint bench fuzz soak interop coverage san demo deps install uninstall clean dist \
    help FORCE

ifneq ($(MISSING),)

$(filter $(SETUP_GOALS),$(GOALS)):
	@CC='$(CC)' URING=$(URING) LIBDEFLATE=$(LIBDEFLATE) sh tests/deps.sh install
	@$(MAKE) BERTH_SETUP=1 $@

else # everything is there: from here to the end of the compiling rules

# ---- CUDA ----------------------------------------------------------------------------------------------------------
# nvcc is looked for only when it is wanted and there is something to compile with it.

ifneq ($(if $(filter 1,$(CUDA)),1,$(and $(filter auto,$(CUDA)),$(CUDA_SOURCES))),)
NVCC_FOUND := $(or $(shell command -v $(NVCC) 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
ifeq ($(CUDA)$(NVCC_FOUND),1)
$(error CUDA=1, but $(NVCC) was not found: install the CUDA toolkit, name it with NVCC=/path/to/nvcc, or build with CUDA=0)
endif
endif
ifneq ($(and $(NVCC_FOUND),$(CUDA_SOURCES)),)
HAVE_CUDA := 1
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC_FOUND)))
CUDA_FLAGS := -DBERTH_HAVE_CUDA -isystem $(CUDA_HOME)/include
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt
# Without these the objects drag in the C++ runtime.
NVCC_FLAGS := -O2 $(addprefix -arch=,$(ARCH)) -I. -fmad=false \
    -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
LIB_SOURCES += $(CUDA_SOURCES)
CUDA_WORD := $(NVCC_FOUND)
else
CUDA_WORD := $(if $(CUDA_SOURCES),$(if $(filter 0,$(CUDA)),left out,nvcc not found),no GPU code in this version)
endif

# ---- libraries -----------------------------------------------------------------------------------------------------

link = $(if $(filter-out 0,$(1)),$(shell CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' sh tests/deps.sh link lib$(2) $(2)))
URING_LINK := $(call link,$(URING),uring)
DEFLATE_LINK := $(call link,$(LIBDEFLATE),deflate)
CJSON_FLAGS := $(shell $(PKG_CONFIG) --cflags libcjson 2>/dev/null)
LIBS := $(URING_LINK) $(DEFLATE_LINK) $(shell $(PKG_CONFIG) --libs libcjson zlib 2>/dev/null) $(CUDA_LIBS) -ldl -lm -pthread
# For programs that link libberth.a: the same libraries by name.
PRIVATE_LIBS := $(patsubst %.a,-l%,$(patsubst lib%,%,$(notdir $(filter %.a,$(LIBS))))) $(filter-out %.a,$(LIBS))
link_word = $(if $(1),$(if $(filter %.a,$(1)),static,shared),no)

# ---- flags ---------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(filter 1,$(WERROR)),-Werror)
INSTRUMENT := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
    $(if $(filter 1,$(FUZZER)),-fsanitize=fuzzer-no-link) $(if $(filter 1,$(COVERAGE)),--coverage -O0)
# -ffp-contract=off stands last: how a number is rounded is not the user's or the compiler's choice.
ALL_CFLAGS := -std=c11 $(WARNINGS) -I. $(CPPFLAGS) -fPIC -fvisibility=hidden -pthread $(CFLAGS) $(INSTRUMENT) -ffp-contract=off
ALL_LDFLAGS := $(LDFLAGS) $(INSTRUMENT) -pthread

COMPILER := $(shell $(CC) --version 2>/dev/null | head -n 1)
HASH := $(shell printf '%s\n' '$(CC) $(COMPILER) $(MACHINE) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LIBS) $(CJSON_FLAGS) \
    $(CUDA_FLAGS) $(NVCC_FLAGS) $(NVCC_FOUND)' | cksum | cut -d' ' -f1)
B := build/$(HASH)
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@echo '  $(1)';)

# What one file gets beyond the others: its instruction set, or the optional library that only it may include.
file_flags = $(if $(filter %_avx2.c,$<),-mavx2 -mfma -mf16c)$(if \
    $(filter %_avx512.c,$<),-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)$(if \
    $(filter quant/json.c,$<),$(CJSON_FLAGS))$(if \
    $(filter loader/reader_uring.c,$<),$(if $(URING_LINK),-DBERTH_HAVE_URING))$(if \
    $(filter loader/digest.c,$<),$(if $(DEFLATE_LINK),-DBERTH_HAVE_LIBDEFLATE))$(if \
    $(filter kernels/device%.c kernels/gemm_lt.c,$<),$(CUDA_FLAGS))

# ---- compiling -----------------------------------------------------------------------------------------------------

RELEASE := $(addsuffix .o,$(addprefix $(B)/release/,$(basename $(LIB_SOURCES))))
TESTING := $(addsuffix .o,$(addprefix $(B)/testing/,$(basename $(LIB_SOURCES))))
TOOL := $(addsuffix .o,$(addprefix $(B)/release/,$(basename $(TOOL_SOURCES))))
TEST_HELPERS := $(addsuffix .o,$(addprefix $(B)/testing/,$(basename $(HELPERS))))
TEST_PROGRAMS := $(addprefix $(B)/tests/,$(TESTS))
MAKER_PROGRAMS := $(addprefix $(B)/tests/,$(MAKERS))
REPLAY_PROGRAMS := $(addprefix $(B)/replay/,$(FUZZERS))
FUZZ_PROGRAMS := $(addprefix $(B)/fuzz/,$(FUZZERS))
BENCH_PROGRAMS := $(addprefix $(B)/bench/,$(BENCHES))
# What a test may call, in the order a linker wants it.
TEST_ARCHIVES := $(B)/libtest.a $(B)/libtools.a $(B)/libberth-testing.a

compile = $(if $(filter 1,$(V)),,@echo '  CC $<'; )mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(file_flags) $(1) -MMD -MP -c -o $@ $<
archive = $(if $(filter 1,$(V)),,@echo '  AR $@'; )rm -f $@ && $(AR) rcD $@ $(filter %.o,$^)
program = $(if $(filter 1,$(V)),,@echo '  LD $@'; )mkdir -p $(@D) && $(CC) $(ALL_LDFLAGS) $(1) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)

$(B)/release/%.o: %.c
	$(call compile)
$(B)/testing/%.o: %.c
	$(call compile,-DBERTH_TESTING)
$(B)/release/%.o $(B)/testing/%.o: %.cu
	$(Q)mkdir -p $(@D) && $(NVCC_FOUND) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# An archive is made anew when the list of its sources changes, so that a deleted file leaves it.
$(B)/sources: FORCE
	$(Q)mkdir -p $(@D) && echo '$(LIB_SOURCES) $(TOOL_SOURCES) $(HELPERS)' | cmp -s - $@ || \
	    echo '$(LIB_SOURCES) $(TOOL_SOURCES) $(HELPERS)' >$@
$(B)/libberth.a: $(RELEASE) $(B)/sources
	$(archive)
$(B)/libberth-testing.a: $(TESTING) $(B)/sources
	$(archive)
$(B)/libtools.a: $(filter-out %/main.o,$(TOOL)) $(B)/sources
	$(archive)
$(B)/libtest.a: $(TEST_HELPERS) $(B)/sources
	$(archive)

SONAME := libberth.so.$(firstword $(subst ., ,$(VERSION)))
# A sanitizer's runtime is undefined in a shared library until a program brings it.
$(B)/libberth.so.$(VERSION): $(RELEASE) loader/berth.map
	$(call program,-shared -Wl$(comma)-soname$(comma)$(SONAME) -Wl$(comma)--version-script=loader/berth.map \
	    $(if $(strip $(INSTRUMENT)),,-Wl$(comma)-z$(comma)defs))
	$(Q)ln -sf $(@F) $(B)/$(SONAME) && ln -sf $(SONAME) $(B)/libberth.so
comma := ,

$(B)/berth: $(TOOL) $(B)/libberth.a
	$(call program)
$(B)/tests/%: $(B)/testing/tests/%.o $(TEST_ARCHIVES)
	$(call program)
$(B)/replay/%: $(B)/testing/tests/fuzz/%.o $(B)/testing/tests/fuzz/replay.o $(TEST_ARCHIVES)
	$(call program)
$(B)/fuzz/%: $(B)/testing/tests/fuzz/%.o $(TEST_ARCHIVES)
	$(call program,-fsanitize=fuzzer)
# A limit is measured by a program without any of berth in it.
$(B)/bench/limit_%: $(B)/release/tests/bench/limit_%.o
	$(call program)
$(B)/bench/%: $(B)/release/tests/bench/%.o $(addprefix $(B)/release/,$(patsubst %.c,%.o,$(wildcard tests/fixture.c))) $(B)/libberth.a
	$(call program)
.SECONDARY:

-include $(wildcard $(B)/*/*/*.d $(B)/*/*/*/*.d)

LIBRARIES := $(if $(LIB_SOURCES),$(B)/libberth.a $(if $(wildcard loader/berth.map),$(B)/libberth.so.$(VERSION)))
PRODUCTS := $(LIBRARIES) $(if $(TOOL_SOURCES),$(B)/berth)

ifneq ($(if $(MAKELEVEL:0=),,$(filter all check demo install,$(GOALS))),)
$(info berth $(VERSION): $(COMPILER)$(if $(SAN),, sanitizers $(SAN)); liburing $(call link_word,$(URING_LINK)), \
    libdeflate $(call link_word,$(DEFLATE_LINK)), CUDA: $(CUDA_WORD))
endif

all: $(PRODUCTS)
	$(Q)for f in $(notdir $(PRODUCTS)) $(if $(filter %.so.$(VERSION),$(PRODUCTS)),$(SONAME) libberth.so); do \
	    ln -sfn $(HASH)/$$f build/$$f; done

# ---- tests ---------------------------------------------------------------------------------------------------------
# Scripts learn from these where the build lies and how it was made.

export CC CFLAGS LDFLAGS SAN URING LIBDEFLATE VERSION
export BERTH := $(CURDIR)/$(B)/berth
export BERTH_BUILD := $(CURDIR)/$(B)
export BERTH_LIBS := $(LIBS)

CHECK_SCRIPTS := $(wildcard tests/cli/run.sh tests/readme.sh)
CHECK_BUILDS := $(PRODUCTS) $(TEST_PROGRAMS) $(MAKER_PROGRAMS) $(REPLAY_PROGRAMS)

check: $(CHECK_BUILDS)
	$(Q)tests/run.sh $(TEST_PROGRAMS) $(REPLAY_PROGRAMS) $(CHECK_SCRIPTS) $(wildcard tests/install_test.sh)
check-fast: $(CHECK_BUILDS)
	$(Q)tests/run.sh $(filter-out %/test_big_%,$(TEST_PROGRAMS)) $(REPLAY_PROGRAMS) $(CHECK_SCRIPTS)
check-one: $(B)/tests/test_$(T) $(MAKER_PROGRAMS)
	$(Q)$(T_WRAP) $< $(ARGS)
san:
	$(Q)$(MAKE) SAN=$(or $(SAN),address$(comma)undefined) check

endif # nothing is missing

deps:
	$(Q)CC='$(CC)' URING=$(URING) LIBDEFLATE=$(LIBDEFLATE) sh tests/deps.sh install
clean:
	$(Q)rm -rf build
help:
	$(Q)sed -n 's/^#: //p' Makefile

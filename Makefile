# SPDX-License-Identifier: Apache-2.0
# diloco: builds with GNU make on Debian or Ubuntu.
#
#   make           programs and libraries, into build/gcc/
#   make demo      two islands train one model on this machine; pictures and figures under build/demo/
#   make demo-large   the same with a GPT of 85 million parameters in PyTorch, for MINUTES=10 where there is PyTorch
#   make outlive   three islands on this machine; one is lost for good while the run goes on, and comes back
#   make outlive-namespaces   the same, each with a network and a folder of its own, as three machines would have
#   make failures  four islands, killed at random for MINUTES=5 with SEED=1: how much of their work counts?
#   make aims      what is promised in seconds, measured: a table, and build/aims/summary.json
#   make check     every test that can run here; what cannot is reported as skipped
#   make check-long   that, and what takes hours: SEEDS=2000 of each kind of trouble, make outlive, make failures
#   make lint      the rules of CONTRIBUTING.md that a script can check
#   make fuzz      searches for bytes that break us, with clang's libFuzzer
#   make check-python   what only PyTorch can show of the Python package
#   make mutants   plants the faults of tests/mutants one by one: which test sees which?
#   make sim       the simulation of the protocol, SEEDS=10000 of each kind of trouble: hours
#   make bench     speeds as ratios within one run, to build/bench/summary.json
#   make bench-quality   what each algorithm costs in loss, at equal tokens: hours, and goes on where it was stopped
#   make check-gpu   what only a GPU can show: kernels, sanitizers, whole models, islands (tests/gpu)
#   make bench-gpu   speeds on a GPU, against what it can do and against PyTorch, to build/gpu/
#   make gpu-kit   both as a folder, build/gpu-kit/, and as one archive, build/gpu-kit.tgz, for a machine that has only a driver and CUDA 13
#   make install   DESTDIR= PREFIX=/usr/local; make uninstall takes all of it away again, and nothing else
#   make wheel     the Python package with libdiloco inside, build/wheel/
#   make dist      a source archive, build/dist/
#   make clean     takes build/ away
#   make help      this list
#
# V=1 shows commands. CC=clang, SAN=address,undefined or SAN=thread, OPT=-O0: each set of flags has a folder of its own.

# The one place of the version is the Python package, which pip builds without this file.
VERSION_FILE := worker/libdiloco/python/diloco/__init__.py
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' $(VERSION_FILE))
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
PKG_CONFIG ?= pkg-config
OPT ?= -O2
SAN ?=
ifeq ($(origin CC),default)
CC := gcc
endif

comma := ,
space := $() $()
B := build/$(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(filter-out -O2,$(OPT)),$(OPT))

GOALS := all check check-long demo demo-large outlive outlive-namespaces failures aims bench bench-quality install lint mutants fuzz tests sim check-gpu bench-gpu gpu-kit \
	check-python wheel uninstall
PLAIN_GOALS := clean dist help
.PHONY: $(GOALS) $(PLAIN_GOALS)
ifndef PREREQS_PRESENT

# First make sure that everything is there, then start over with pkg-config's answers.
$(GOALS):
	@conf/prereqs.sh$(if $(filter check check-long,$@), --tests)
	@$(MAKE) --no-print-directory -j$$(nproc) PREREQS_PRESENT=1 $@

.DEFAULT_GOAL := all

clean:
	rm -rf build

# A source archive: build/dist/diloco-VERSION.tar.gz, with the whole text of the licence in it.
dist:
	@conf/dist.sh $(VERSION) build/dist

help:
	@sed -n 's/^#   make/  make/p; s/^# V=1/\nV=1/p' Makefile

else

MODULES := libzmq libsodium libzstd libprotobuf-c inih jansson libsystemd
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(MODULES) libpcre2-8)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(MODULES))
WORKER_LIBS := $(shell $(PKG_CONFIG) --libs libpcre2-8)
CMOCKA_LIBS := $(shell $(PKG_CONFIG) --libs cmocka)
MACHINE := $(shell $(CC) -dumpmachine)
CLANG := $(findstring clang,$(shell $(CC) --version | head -1))
# For tests alone: the kernels of kernels/cuda/ on an emulated GPU.
CXX := $(if $(CLANG),$(patsubst clang%,clang++%,$(notdir $(CC))),g++)
HAS_CXX := $(shell command -v $(CXX) 2>/dev/null)

# ---- CUDA's toolkit, for libdiloco-cuda.so: nvcc, and beside it headers and the runtime to link ----
NVCC ?= nvcc
NVCC_VERSION := $(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
ifneq ($(NVCC_VERSION),)
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
CUDA_TARGET := $(CUDA_HOME)/targets/$(firstword $(subst -, ,$(MACHINE)))-linux
CUDA_HEADER := $(firstword $(wildcard $(foreach folder,$(CUDA_HOME)/include $(CUDA_TARGET)/include /usr/include,$(folder)/cuda_runtime_api.h)))
CUDA_INCLUDE := $(patsubst %/,%,$(dir $(CUDA_HEADER)))
CUDART := $(firstword $(wildcard $(foreach folder,$(CUDA_HOME)/lib64 $(CUDA_HOME)/lib $(CUDA_TARGET)/lib \
	/usr/lib/$(MACHINE),$(folder)/libcudart_static.a)))
CUDA_LACKS := $(if $(CUDA_HEADER),,cuda_runtime_api.h) $(if $(wildcard $(CUDA_INCLUDE)/cublasLt.h),,cublasLt.h) $(if $(CUDART),,libcudart_static.a)
endif
# Why libdiloco-cuda.so is not built; empty: it is.
ifeq ($(NVCC_VERSION),)
CUDA_WITHOUT := not found and not needed; this build has the CPU backend only
else ifneq ($(strip $(CUDA_LACKS)),)
CUDA_WITHOUT := toolkit $(NVCC_VERSION) found without $(strip $(CUDA_LACKS)); this build has the CPU backend only
else ifneq ($(SAN),)
CUDA_WITHOUT := toolkit $(NVCC_VERSION) found and not used with a sanitizer; this build has the CPU backend only
endif

WARN := -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla
# What a fault of ours in memory is stopped by (tests/lint/hardening.sh). The checks of FORTIFY_SOURCE need -O1 or more, and
# would hide from a sanitizer the calls that it checks itself.
STACK := -fstack-protector-strong $(shell $(CC) -Werror -fstack-clash-protection -S -x c -o /dev/null /dev/null 2>/dev/null && echo -fstack-clash-protection)
HARDENED := $(STACK) $(if $(SAN)$(filter -O0,$(OPT)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
CFLAGS_ALL := -std=gnu11 -D_GNU_SOURCE -DDILOCO_VERSION='"$(VERSION)"' -I. -I$(B)/gen $(OPT) -g -fPIC -pthread $(WARN) \
	$(HARDENED) -ffp-contract=off -fvisibility=hidden -fno-strict-aliasing $(PKG_CFLAGS)
LDFLAGS_ALL := -pthread -Wl,-z,relro,-z,now,-z,noexecstack
ifneq ($(SAN),)
# Instrumented code makes gcc's flow analysis see ghosts.
CFLAGS_ALL += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(CLANG),,-Wno-maybe-uninitialized \
	-Wno-array-bounds -Wno-format-truncation -Wno-stringop-overflow -Wno-stringop-overread)
LDFLAGS_ALL += -fsanitize=$(SAN)
endif
# OpenMP's runtime is not instrumented: under the thread sanitizer the kernels run on one thread instead.
OPENMP := $(if $(findstring thread,$(SAN)),-fopenmp-simd -Wno-unknown-pragmas,-fopenmp)
LIBS := $(PKG_LIBS) -lm -ldl

# ---- instruction sets: the hot loops are compiled once for each, and chosen at run time ----
ISAS := base
ifneq ($(filter x86_64%,$(MACHINE)),)
ISAS += avx2 avx512
endif
ISA_base :=
ISA_avx2 := -mavx2
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512

# ---- objects, one archive a room ----
objects = $(patsubst %.c,$(B)/%.o,$(1))
VEC_SRC := outer_opt/vec_impl.c outer_opt/vec_coarse.c outer_opt/vec_pack.c
VEC_OBJ := $(foreach isa,$(ISAS),$(patsubst %.c,$(B)/%.$(isa).o,$(VEC_SRC)))
# Base: libsodium's, one message after the other.
LANES_SRC := common/blake2b_lanes.c
LANES_OBJ := $(foreach isa,$(filter-out base,$(ISAS)),$(patsubst %.c,$(B)/%.$(isa).o,$(LANES_SRC)))
CPU_SRC := $(wildcard kernels/cpu/*.c)
CPU_OBJ := $(foreach isa,$(ISAS),$(patsubst %.c,$(B)/%.$(isa).o,$(CPU_SRC)))
PROGRAM_SRC := daemon/dilocod.c daemon/dilococtl.c worker/diloco-worker.c

common_OBJ := $(call objects,$(filter-out $(LANES_SRC),$(wildcard common/*.c))) $(LANES_OBJ)
outer_opt_OBJ := $(call objects,$(filter-out $(VEC_SRC),$(wildcard outer_opt/*.c))) $(VEC_OBJ)
net_OBJ := $(call objects,$(wildcard net/*/*.c)) $(if $(wildcard net/transport/wire.proto),$(B)/gen/net/transport/wire.pb-c.o)
kernels_OBJ := $(call objects,$(wildcard kernels/*.c)) $(CPU_OBJ)
worker_OBJ := $(call objects,$(filter-out $(PROGRAM_SRC),$(wildcard worker/*.c worker/*/*.c)))
daemon_OBJ := $(call objects,$(filter-out $(PROGRAM_SRC),$(wildcard daemon/*.c daemon/*/*.c)))
ROOMS := daemon worker net outer_opt kernels common
ARCHIVES = $(foreach room,$(ROOMS),$(if $($(room)_OBJ),$(B)/$(room).a))
PROGRAMS := $(foreach src,$(wildcard $(PROGRAM_SRC)),$(B)/$(notdir $(basename $(src))))
LIBDILOCO_OBJ := $(call objects,$(wildcard worker/libdiloco/*.c)) $(common_OBJ)

# ---- the CUDA backend, which diloco-worker opens where it is asked for; nothing else links it ----
CUDA_SRC := $(if $(CUDA_WITHOUT),,$(wildcard kernels/cuda/*.c))
CUDA_KERNEL_OBJ := $(if $(CUDA_WITHOUT),,$(patsubst %.cu,$(B)/%.o,$(wildcard kernels/cuda/*.cu)))
CUDA_LIBRARY := $(if $(CUDA_WITHOUT),,$(B)/libdiloco-cuda.so)

# ---- tests ----
TEST_SRC := $(wildcard tests/unit/*.c tests/num/*.c tests/sim/*.c tests/system/test_*.c tests/fuzz/*.c tests/golden/*.c)
TESTS := $(patsubst %.c,$(B)/%,$(TEST_SRC))
TOOL_SRC := $(wildcard tests/system/tool_*.c tests/demo/demo.c tests/outlive/outlive.c tests/failures/failures.c tests/aims/aims.c)
# CUDA sources without a GPU: what is C is compiled as ever, kernels by the C++ compiler with tests/emu/emu.cuh.
CUDA_PLAIN_OBJ := $(call objects,kernels/cuda/cuda_linear.c kernels/cuda/cuda_reserve.c kernels/cuda/cuda_spans.c)
EMU_OBJ := $(call objects,$(filter-out tests/emu/test_%,$(wildcard tests/emu/*.c)))
EMU_OBJ += $(patsubst tests/emu/%.cc,$(B)/tests/emu/%.o,$(wildcard tests/emu/*.cc))
EMU_CUDA_OBJ := $(patsubst %.cu,$(B)/tests/emu/%.o,$(wildcard kernels/cuda/*.cu))
EMU_TESTS := $(if $(HAS_CXX),$(patsubst %.c,$(B)/%,$(wildcard tests/emu/test_*.c)))
# On a GPU, where there is one; they are built everywhere.
GPU_TESTS := $(patsubst %.c,$(B)/%,$(wildcard tests/gpu/test_*.c))
GPU_OBJ := $(call objects,tests/gpu/gpu.c)
GPU_TOOLS := $(B)/tests/gpu/bench_gpu $(B)/tests/gpu/gpu_there
GPU_BENCH_OBJ := $(call objects,$(wildcard tests/gpu/bench_gpu*.c))
DEMO_OBJ := $(call objects,$(wildcard tests/demo/*.c))
AIMS_OBJ := $(call objects,$(wildcard tests/aims/*.c))
QUALITY_SRC := $(wildcard tests/bench/quality*.c tests/bench/lab.c tests/bench/field.c)
BENCH_OBJ := $(call objects,$(filter-out $(QUALITY_SRC),$(wildcard tests/bench/*.c)))
QUALITY_OBJ := $(call objects,$(QUALITY_SRC))
TOOLS := $(patsubst %.c,$(B)/%,$(TOOL_SRC))
# A library of another version, which is not to be used.
PRELOADED := $(patsubst tests/preloaded/%.c,$(B)/tests/%.so,$(wildcard tests/preloaded/*.c))
FAKE_CUDA := $(B)/tests/fakes/libdiloco-cuda.so
# NCCL, played between processes on arrays of the host; and one that lacks a function.
FAKE_NCCL := $(B)/tests/fakes/nccl/libnccl.so.2 $(B)/tests/fakes/nccl_lacking/libnccl.so.2
# testlib has a constructor; of the others a test gets what it uses, so that a part's test builds that part alone.
TESTLIB_OBJ := $(B)/tests/lib/testlib.o
TEST_LIB_OBJ := $(filter-out $(TESTLIB_OBJ),$(call objects,$(wildcard tests/lib/*.c tests/kern/*.c)))

Q := $(if $(V),,@)
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),$(if $(V),,@),@printf '  %-7s %s\n' $(1) $(patsubst $(B)/%,%,$@);)

all: $(PROGRAMS) $(B)/libdiloco.so.0 $(B)/libdiloco.a $(CUDA_LIBRARY)
	@printf 'Built %s with %s%s. CUDA: %s\n' $(B) '$(CC)' '$(if $(SAN), ($(SAN) sanitizer))' \
		'$(or $(CUDA_WITHOUT),libdiloco-cuda.so by toolkit $(NVCC_VERSION))'

tests: all $(TESTS) $(EMU_TESTS) $(GPU_TESTS) $(GPU_TOOLS) $(TOOLS) $(PRELOADED) $(FAKE_CUDA) $(FAKE_NCCL) $(B)/tests/bench/bench $(B)/tests/bench/quality

$(call objects,$(shell grep -rl --include=*.c DILOCO_VERSION common daemon worker tests)): $(VERSION_FILE)

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CFLAGS_ALL) $(CFLAGS) $(CFLAGS_$(firstword $(subst /, ,$<))) -MMD -MP -c $< -o $@

$(B)/gen/%.o: $(B)/gen/%.c
	$(call say,CC)$(CC) $(CFLAGS_ALL) $(CFLAGS) -Wno-all -Wno-extra -w -MMD -MP -c $< -o $@

$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: %.proto
	@mkdir -p $(@D)
	$(call say,PROTOC)protoc-c --c_out=$(B)/gen $<

CFLAGS_outer_opt := -O3
CFLAGS_kernels := -O3 -fno-math-errno -fno-trapping-math $(OPENMP) $(if $(CLANG),-Wno-pass-failed)
CFLAGS_worker := $(OPENMP)
# Loops over all values of a fragment, in a step of the trainer's.
LIBDILOCO_LOOPS := -O3
ifneq ($(filter-out -O2,$(OPT)),)
CFLAGS_outer_opt :=
LIBDILOCO_LOOPS :=
endif
$(call objects,worker/libdiloco/aside.c worker/libdiloco/attach_device.c worker/libdiloco/attach_types.c): CFLAGS_worker += $(LIBDILOCO_LOOPS)

define isa_rule
$(B)/outer_opt/vec_%.$(1).o: outer_opt/vec_%.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(CFLAGS_ALL) $$(CFLAGS) $$(CFLAGS_outer_opt) $$(ISA_$(1)) -DISA=$(1) -MMD -MP -c $$< -o $$@
$(B)/common/%_lanes.$(1).o: common/%_lanes.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(CFLAGS_ALL) $$(CFLAGS) $$(CFLAGS_outer_opt) $$(ISA_$(1)) -DISA=$(1) -MMD -MP -c $$< -o $$@
$(B)/kernels/cpu/%.$(1).o: kernels/cpu/%.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(CFLAGS_ALL) $$(CFLAGS) $$(CFLAGS_kernels) $$(ISA_$(1)) $$(if $$(ISA_$(1)),-mfma -ffp-contract=fast) \
		-DISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

define archive_rule
$(B)/$(1).a: $$($(1)_OBJ)
	@mkdir -p $$(@D)
	$$(call say,AR)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach room,$(ROOMS),$(eval $(call archive_rule,$(room))))

# Anything that includes the generated header needs it to exist first.
$(net_OBJ) $(daemon_OBJ) $(call objects,$(PROGRAM_SRC) $(wildcard tests/*/*.c)): | $(if $(wildcard net/transport/wire.proto),$(B)/gen/net/transport/wire.pb-c.h)

$(B)/dilocod: $(B)/daemon/dilocod.o $(foreach room,daemon net outer_opt common,$(B)/$(room).a)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $^ $(LIBS) -o $@
$(B)/dilococtl: $(B)/daemon/dilococtl.o $(foreach room,daemon net outer_opt common,$(B)/$(room).a)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $^ $(LIBS) -o $@
$(B)/diloco-worker: $(B)/worker/diloco-worker.o $(foreach room,worker kernels common,$(B)/$(room).a)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $(filter -fopenmp,$(OPENMP)) $^ $(LIBS) $(WORKER_LIBS) -ldnnl -o $@
$(B)/libdiloco.a: $(LIBDILOCO_OBJ)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
# Loaded into other people's programs: of common/ only what it uses, and nothing but the C library (tests/lint/library.sh).
$(B)/libdiloco.so.0: $(call objects,$(wildcard worker/libdiloco/*.c)) $(B)/common.a
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -shared -Wl,-soname,libdiloco.so.0 $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $^ -Wl,--as-needed -lm -o $@

# ---- libdiloco-cuda.so: the CUDA runtime inside, the driver and cuBLAS opened when a GPU is; one name to the outside ----
NVCCFLAGS_ALL := -std=c++17 -O3 -I. -gencode arch=compute_80,code=[sm_80$(comma)compute_80] -gencode arch=compute_90,code=sm_90 \
	-Xptxas -warn-spills -Werror all-warnings -Xcompiler -fPIC,$(subst $(space),$(comma),$(strip $(STACK))),-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics
$(CUDA_KERNEL_OBJ): $(B)/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCCFLAGS_ALL) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
CUDA_HOST_OBJ := $(call objects,$(CUDA_SRC))
$(CUDA_HOST_OBJ): CFLAGS_kernels := -O3 $(if $(filter-out /usr/include,$(CUDA_INCLUDE)),-isystem $(CUDA_INCLUDE))
$(B)/libdiloco-cuda.so: $(CUDA_HOST_OBJ) $(CUDA_KERNEL_OBJ) $(B)/common/mem.o kernels/cuda/exported.map
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -shared -Wl,-soname,libdiloco-cuda.so -Wl,--version-script=kernels/cuda/exported.map \
		-Wl,--defsym=err_set=cuda_err_set -Wl,-z,defs $(filter %.o,$^) $(CUDART) -lm -ldl -lrt -o $@

# ---- the emulated GPU ----
CXXFLAGS_ALL = $(filter-out -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes,$(CFLAGS_ALL)) -std=c++17
$(B)/tests/emu/%.o: tests/emu/%.cc
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(CXXFLAGS_ALL) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(B)/tests/emu/emu_kernels.cu.o: tests/emu/emu_kernels.cu
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(CXXFLAGS_ALL) $(CXXFLAGS) -Wno-unknown-pragmas -include tests/emu/emu.cuh -x c++ -MMD -MP -c $< -o $@
$(EMU_CUDA_OBJ): $(B)/tests/emu/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) $(CXXFLAGS_ALL) $(CXXFLAGS) -Wno-unknown-pragmas -include tests/emu/emu.cuh -x c++ -MMD -MP -c $< -o $@
EMU_CORE_OBJ := $(filter-out $(B)/tests/emu/kern_emu%,$(EMU_OBJ))
$(B)/tests/emu/test_emu: $(B)/tests/emu/test_emu.o $(B)/tests/emu/emu_kernels.cu.o $(EMU_CORE_OBJ) $(TESTLIB_OBJ) $(B)/tests/lib.a $(ARCHIVES)
	$(call say,LINK)$(CXX) $(LDFLAGS_ALL) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS) $(WORKER_LIBS) $(CMOCKA_LIBS) -o $@
$(filter-out %/test_emu,$(EMU_TESTS)): %: %.o $(EMU_OBJ) $(EMU_CUDA_OBJ) $(CUDA_PLAIN_OBJ) $(TESTLIB_OBJ) $(B)/tests/lib.a $(ARCHIVES)
	$(call say,LINK)$(CXX) $(LDFLAGS_ALL) $(LDFLAGS) $(filter -fopenmp,$(OPENMP)) $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS) $(WORKER_LIBS) $(CMOCKA_LIBS) -ldnnl -o $@

$(GPU_TESTS) $(GPU_TOOLS): $(GPU_OBJ)
$(B)/tests/gpu/bench_gpu: $(GPU_BENCH_OBJ)
# What somebody who only wants to see it has to build: of the tests' own parts three.
$(B)/tests/demo/demo: $(DEMO_OBJ) $(call objects,tests/lib/corpus.c tests/lib/homes.c tests/lib/proc.c) $(ARCHIVES)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $(filter -fopenmp,$(OPENMP)) $(filter %.o,$^) -Wl,--start-group $(ARCHIVES) -Wl,--end-group $(LIBS) $(WORKER_LIBS) -ldnnl -o $@
$(B)/tests/aims/aims: $(AIMS_OBJ)
$(B)/tests/bench/bench: $(BENCH_OBJ)
$(B)/tests/bench/quality: $(QUALITY_OBJ)
$(PRELOADED): $(B)/tests/%.so: tests/preloaded/%.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 $(WARN) -fPIC -fvisibility=hidden -shared $< -o $@ -ldl
$(FAKE_CUDA): tests/fakes/other_version.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=gnu11 -O2 $(WARN) -I. -fPIC -fvisibility=hidden -shared $< -o $@
$(FAKE_NCCL): tests/fakes/fake_nccl.c tests/fakes/fake_nccl.h worker/comm/nccl_api.h worker/comm/comm_sum.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) $(CFLAGS_ALL) $(CFLAGS) -fopenmp-simd $(LDFLAGS_ALL) $(LDFLAGS) $(if $(findstring lacking,$@),-DFAKE_WITHOUT_FINALIZE) \
		-shared -Wl,-soname,libnccl.so.2 $(filter %.c,$^) -o $@
$(B)/tests/lib.a: $(TEST_LIB_OBJ)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
# The queues of a GPU, against one that the test plays: without the toolkit, by the header that stands for CUDA's.
$(B)/tests/fakes/cuda_queue.o: kernels/cuda/cuda_queue.c
	@mkdir -p $(@D)
	$(call say,CC)$(CC) $(CFLAGS_ALL) $(CFLAGS) -Itests/fakes -MMD -MP -c $< -o $@
$(B)/tests/unit/test_cuda_queue: $(B)/tests/fakes/cuda_queue.o
$(B)/tests/sim/test_sync: $(B)/tests/fakes/tagged_ident.o
$(B)/tests/unit/test_cuda_choices: $(call objects,kernels/cuda/cuda_choices.c)
$(B)/tests/unit/test_cuda_peak: $(B)/kernels/cuda/cuda_peak.o
$(B)/tests/unit/test_kern_cuda: | $(FAKE_CUDA) $(CUDA_LIBRARY)
$(B)/tests/unit/test_comm_nccl $(B)/tests/emu/test_nccl_emu: | $(FAKE_NCCL)
$(B)/tests/%: $(B)/tests/%.o $(TESTLIB_OBJ) $(B)/tests/lib.a $(ARCHIVES)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $(filter -fopenmp,$(OPENMP)) $(filter %.o,$^) \
		-Wl,--start-group $(B)/tests/lib.a $(ARCHIVES) -Wl,--end-group $(LIBS) $(WORKER_LIBS) $(CMOCKA_LIBS) -ldnnl -o $@

check: tests
	@BUILD=$(B) CC='$(CC)' SAN='$(SAN)' tests/run.sh $(TESTS) $(or $(EMU_TESTS),tests/emu/absent.sh) $(GPU_TESTS) $(wildcard tests/lint/*.sh tests/num/*.sh tests/system/*.sh) tests/fuzz/guided.sh

# Skipped, each has said why.
check-gpu: all $(GPU_TESTS) $(GPU_TOOLS)
	@BUILD=$(B) tests/gpu/run.sh check || [ $$? -eq 77 ]

bench-gpu: all $(GPU_TOOLS)
	@BUILD=$(B) tests/gpu/run.sh bench || [ $$? -eq 77 ]

gpu-kit: all $(GPU_TESTS) $(GPU_TOOLS)
	@$(if $(CUDA_WITHOUT),echo 'gpu-kit: CUDA: $(CUDA_WITHOUT)'; exit 1,tests/gpu/kit.sh $(B) build/gpu-kit)

check-long: check
	@TEST_SEEDS=$(or $(SEEDS),2000) $(B)/tests/sim/test_sync
	@TEST_SEEDS=$(or $(SEEDS),2000) $(B)/tests/sim/test_epochs
	@$(MAKE) --no-print-directory PREREQS_PRESENT=1 outlive failures

sim: $(B)/tests/sim/test_sync
	@TEST_SEEDS=$(or $(SEEDS),10000) $<

lint: all
	@BUILD=$(B) CC='$(CC)' tests/run.sh $(wildcard tests/lint/*.sh)

mutants:
	@BUILD=$(B) CC='$(CC)' SAN='$(SAN)' OPT='$(OPT)' tests/mutants.sh $(ONLY)

demo: export DEMO_DATA = $(DATA)
demo: $(PROGRAMS) $(B)/tests/demo/demo
	@$(B)/tests/demo/demo --programs $(B) $(if $(DATA),--data "$$DEMO_DATA")

# A GPT of 85 million parameters in PyTorch: skipped where there is none, and it has said how to get it.
demo-large: export DEMO_DATA = $(DATA)
demo-large: $(PROGRAMS) $(B)/libdiloco.so.0
	@BUILD=$(B) MINUTES='$(MINUTES)' PYTHON='$(PYTHON)' tests/demo/large.sh || [ $$? -eq 77 ]

outlive: export OUTLIVE_DATA = $(or $(DATA),tests/demo/shakespeare.txt)
outlive: $(PROGRAMS) $(B)/tests/outlive/outlive
	@$(B)/tests/outlive/outlive --programs $(B) --data "$$OUTLIVE_DATA"

outlive-namespaces: export OUTLIVE_DATA = $(or $(DATA),tests/demo/shakespeare.txt)
outlive-namespaces: $(PROGRAMS) $(B)/tests/outlive/outlive
	@$(B)/tests/outlive/outlive --programs $(B) --data "$$OUTLIVE_DATA" --namespaces --out build/outlive-namespaces || [ $$? -eq 77 ]

# What only PyTorch can show of the Python package; it is installed into build/python unless PYTHON=... is one that has it.
check-python: $(PROGRAMS) $(B)/libdiloco.so.0 $(B)/tests/system/tool_logits
	@BUILD=$(B) CC='$(CC)' tests/python/check.sh --install || [ $$? -eq 77 ] # skipped, and it has said why

# A wheel that carries libdiloco.so.0, for machines like this one: build/wheel/diloco-*.whl.
wheel: $(B)/libdiloco.so.0
	@conf/wheel.sh $(B)/libdiloco.so.0 $(firstword $(subst -, ,$(MACHINE))) build/wheel

failures: $(PROGRAMS) $(B)/tests/failures/failures $(B)/tests/system/tool_synth
	@BUILD=$(B) $(B)/tests/failures/failures --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1)

aims: $(PROGRAMS) $(B)/tests/aims/aims $(B)/tests/system/tool_synth
	@BUILD=$(B) $(B)/tests/aims/aims

fuzz:
	@tests/fuzz/run.sh || [ $$? -eq 77 ] # skipped, and it has said why
.PHONY: tests/fuzz-archives
tests/fuzz-archives: $(foreach room,daemon net outer_opt common tests/lib,$(B)/$(room).a) $(TESTLIB_OBJ)

bench: $(PROGRAMS) $(B)/tests/bench/bench $(B)/tests/system/tool_synth
	@BUILD=$(B) $(B)/tests/bench/bench --programs $(B)

bench-quality: export QUALITY_DATA = $(DATA)
bench-quality: $(B)/tests/bench/quality $(PROGRAMS)
	@BUILD=$(B) $(B)/tests/bench/quality $(if $(DATA),--data "$$QUALITY_DATA") $(if $(ONLY),--only '$(ONLY)') $(if $(SEEDS),--seeds $(SEEDS))

include conf/install.mk
-include $(shell find $(B) -name test-data -prune -o -type f -name '*.d' -print 2>/dev/null)
endif

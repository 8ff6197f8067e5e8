# SPDX-License-Identifier: Apache-2.0
# The tests, and what shows and measures: read by the Makefile.
#
#   make demo      two islands train one model on this machine; pictures and figures under build/demo/
#   make demo-large   the same with a GPT of 85 million parameters in PyTorch, for MINUTES=10 where there is PyTorch
#   make outlive   three islands on this machine; one is lost for good while the run goes on, and comes back
#   make outlive-namespaces   the same, each with a network and a folder of its own, as three machines would have
#   make failures  four islands, killed at random for MINUTES=5 with SEED=1: how much of their work counts?
#   make lies      a member that lies and floods, each way for SECONDS=60, of three islands and of five: tables; hours
#   make aims      what is promised in seconds, measured: a table, and build/aims/summary.json
#   make check     every test that can run here; what cannot is reported as skipped
#   make check-long   that, and what takes hours: SEEDS=2000 of each kind of trouble, make outlive, make failures
#   make lint      the rules of CONTRIBUTING.md that a script can check
#   make fuzz      searches for bytes that break us, with clang's libFuzzer
#   make check-python   what only PyTorch can show of the Python package
#   make mutants   plants the faults of tests/mutants one by one: which test sees which?
#   make sim       the simulation of the protocol, SEEDS=10000 of each kind of trouble from FIRST=1 on: hours
#   make bench     speeds as ratios within one run, to build/bench/summary.json
#   make bench-quality   what each algorithm costs in loss, at equal tokens: hours, and goes on where it was stopped
#   make check-gpu   what only a GPU can show: kernels, sanitizers, whole models, islands (tests/gpu)
#   make bench-gpu   speeds on a GPU, against what it can do and against PyTorch, to build/gpu/
#   make gpu-kit   both as a folder, build/gpu-kit/, and as one archive, build/gpu-kit.tgz, for a machine that has only a driver and CUDA 13

# Runs the kernels of kernels/cuda/ on an emulated GPU.
CXX := $(if $(CLANG),$(patsubst clang%,clang++%,$(notdir $(CC))),g++)
HAS_CXX := $(shell command -v $(CXX) 2>/dev/null)
CMOCKA_LIBS := $(shell $(PKG_CONFIG) --libs cmocka)
TEST_SRC := $(wildcard tests/unit/*.c tests/num/*.c tests/sim/*.c tests/system/test_*.c tests/fuzz/*.c tests/golden/*.c)
# Of attention by cuDNN, where its header is.
CUDNN_TESTS := $(wildcard tests/unit/test_cuda_dnn*.c) tests/unit/test_cuda_attention.c
TESTS := $(patsubst %.c,$(B)/%,$(filter-out $(if $(CUDNN_HEADER),,$(CUDNN_TESTS)),$(TEST_SRC)))
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
# A driver without a GPU, for cuDNN to make its plans by.
FAKE_DRIVER := $(B)/tests/fakes/driver/libcuda.so.1
# testlib has a constructor; of the others a test gets what it uses, so that a part's test builds that part alone.
TESTLIB_OBJ := $(B)/tests/lib/testlib.o
TEST_LIB_OBJ := $(filter-out $(TESTLIB_OBJ),$(call objects,$(wildcard tests/lib/*.c tests/kern/*.c)))

tests: all $(TESTS) $(EMU_TESTS) $(GPU_TESTS) $(GPU_TOOLS) $(TOOLS) $(PRELOADED) $(FAKE_CUDA) $(FAKE_NCCL) $(B)/tests/bench/bench $(B)/tests/bench/quality

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
$(B)/tests/num/test_direction: $(B)/tests/bench/lab.o
$(B)/tests/sim/test_sync: $(B)/tests/fakes/tagged_ident.o
$(B)/tests/unit/test_cuda_choices: $(call objects,kernels/cuda/cuda_choices.c)
$(FAKE_DRIVER): tests/fakes/driver.c
	@mkdir -p $(@D)
	$(call say,LINK)$(CC) -std=gnu11 -O2 $(WARN) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 $< -o $@
$(call objects,$(CUDNN_TESTS)): CFLAGS_tests := $(if $(filter-out /usr/include,$(CUDA_INCLUDE)),-isystem $(CUDA_INCLUDE))
$(B)/tests/unit/test_cuda_attention: $(call objects,kernels/cuda/cuda_attention.c kernels/cuda/cuda_choices.c)
$(B)/tests/unit/test_cuda_dnn_played: $(call objects,kernels/cuda/cuda_dnn_graph.c)
$(B)/tests/unit/test_cuda_dnn_load: $(call objects,kernels/cuda/cuda_dnn.c)
$(B)/tests/unit/test_cuda_dnn: $(call objects,kernels/cuda/cuda_dnn.c kernels/cuda/cuda_dnn_graph.c kernels/cuda/cuda_library.c) | $(FAKE_DRIVER)
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
	@$(MAKE) --no-print-directory PREREQS_PRESENT=1 sim SEEDS=$(or $(SEEDS),2000)
	@$(MAKE) --no-print-directory PREREQS_PRESENT=1 outlive failures

sim: $(B)/tests/sim/test_sync $(B)/tests/sim/test_epochs $(B)/tests/sim/test_dealing
	@BUILD=$(B) SEEDS='$(SEEDS)' FIRST='$(FIRST)' JOBS='$(JOBS)' tests/sim.sh

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

failures: $(PROGRAMS) $(B)/tests/failures/failures $(B)/tests/system/tool_synth
	@BUILD=$(B) $(B)/tests/failures/failures --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1)

lies: $(PROGRAMS) $(B)/tests/system/tool_synth $(B)/tests/system/test_lies $(B)/tests/system/test_flood
	@BUILD=$(B) LIES_S=$(or $(SECONDS),60) $(B)/tests/system/test_lies
	@for islands in 3 5; do BUILD=$(B) FLOOD_S=$(or $(SECONDS),60) FLOOD_ISLANDS=$$islands $(B)/tests/system/test_flood || exit 1; done

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

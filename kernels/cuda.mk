# SPDX-License-Identifier: Apache-2.0
# The CUDA backend, libdiloco-cuda.so, where CUDA's toolkit is: read by the Makefile.

# ---- CUDA's toolkit: nvcc, and beside it headers and the runtime to link ----
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

# cuDNN's header, if it is there: attention by cuDNN is built in, and asked for where libcudnn.so.9 is when it runs.
CUDNN_HEADER := $(if $(CUDA_WITHOUT),,$(firstword $(wildcard $(foreach folder,$(CUDA_INCLUDE) /usr/local/include /usr/include,$(folder)/cudnn_graph.h))))
CUDNN_SRC := kernels/cuda/cuda_attention.c kernels/cuda/cuda_dnn.c kernels/cuda/cuda_dnn_graph.c

# ---- the CUDA backend, which diloco-worker opens where it is asked for; nothing else links it ----
CUDA_SRC := $(if $(CUDA_WITHOUT),,$(filter-out $(if $(CUDNN_HEADER),kernels/cuda/cuda_attention_plain.c,$(CUDNN_SRC)),$(wildcard kernels/cuda/*.c)))
CUDA_KERNEL_OBJ := $(if $(CUDA_WITHOUT),,$(patsubst %.cu,$(B)/%.o,$(wildcard kernels/cuda/*.cu)))
CUDA_LIBRARY := $(if $(CUDA_WITHOUT),,$(B)/libdiloco-cuda.so)

# ---- libdiloco-cuda.so: the CUDA runtime inside, the driver and cuBLAS opened when a GPU is; one name to the outside ----
NVCCFLAGS_ALL := -std=c++17 -O3 -I. -gencode arch=compute_80,code=[sm_80$(comma)compute_80] -gencode arch=compute_90,code=sm_90 \
	-Xptxas -warn-spills -Werror all-warnings -Xcompiler -fPIC,$(subst $(space),$(comma),$(strip $(STACK))),-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics
$(CUDA_KERNEL_OBJ): $(B)/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) $(NVCCFLAGS_ALL) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
CUDA_HOST_OBJ := $(call objects,$(CUDA_SRC))
# Compiled in every build, so that a mistake in it is seen: what stands for attention by cuDNN without its header.
CUDA_PLAIN_ATTENTION := $(call objects,kernels/cuda/cuda_attention_plain.c)
$(CUDA_HOST_OBJ) $(CUDA_PLAIN_ATTENTION): CFLAGS_kernels := -O3 $(if $(filter-out /usr/include,$(CUDA_INCLUDE)),-isystem $(CUDA_INCLUDE))
$(B)/libdiloco-cuda.so: | $(CUDA_PLAIN_ATTENTION)
$(B)/libdiloco-cuda.so: $(CUDA_HOST_OBJ) $(CUDA_KERNEL_OBJ) $(B)/common/mem.o kernels/cuda/exported.map
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -shared -Wl,-soname,libdiloco-cuda.so -Wl,--version-script=kernels/cuda/exported.map \
		-Wl,--defsym=err_set=cuda_err_set -Wl,-z,defs $(filter %.o,$^) $(CUDART) -lm -ldl -lrt -o $@

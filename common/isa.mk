# SPDX-License-Identifier: Apache-2.0
# The hot loops: compiled once for each instruction set, and chosen at run time (common/isa.h). Read by the Makefile.

ISAS := base
ifneq ($(filter x86_64%,$(MACHINE)),)
ISAS += avx2 avx512
endif
ISA_base :=
ISA_avx2 := -mavx2
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512

VEC_SRC := outer_opt/vec_impl.c outer_opt/vec_coarse.c outer_opt/vec_pack.c
VEC_OBJ := $(foreach isa,$(ISAS),$(patsubst %.c,$(B)/%.$(isa).o,$(VEC_SRC)))
# Base: libsodium's, one message after the other.
LANES_SRC := common/blake2b_lanes.c
LANES_OBJ := $(foreach isa,$(filter-out base,$(ISAS)),$(patsubst %.c,$(B)/%.$(isa).o,$(LANES_SRC)))
CPU_SRC := $(wildcard kernels/cpu/*.c)
CPU_OBJ := $(foreach isa,$(ISAS),$(patsubst %.c,$(B)/%.$(isa).o,$(CPU_SRC)))

# Above base, kernels may multiply and add in one rounding.
FMA :=
$(filter-out %.base.o,$(CPU_OBJ)): FMA := -mfma -ffp-contract=fast
$(LANES_OBJ): CFLAGS_common = $(CFLAGS_outer_opt)
define isa_rule
$(B)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(CC) $$(CFLAGS_ALL) $$(CFLAGS) $$(CFLAGS_$$(firstword $$(subst /, ,$$<))) $$(ISA_$(1)) $$(FMA) -DISA=$(1) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

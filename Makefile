# SPDX-License-Identifier: Apache-2.0
# diloco: builds with GNU make on Debian or Ubuntu. tests/tests.mk tests and measures, kernels/cuda.mk builds the CUDA
# backend, conf/install.mk installs, and common/isa.mk compiles the hot loops for each instruction set.
#
#   make           programs and libraries, into build/gcc/
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

GOALS := all check check-long demo demo-large outlive outlive-namespaces failures lies aims bench bench-quality install lint mutants fuzz tests sim check-gpu bench-gpu gpu-kit \
	check-python wheel uninstall
PLAIN_GOALS := clean dist help
.PHONY: $(GOALS) $(PLAIN_GOALS)
.DEFAULT_GOAL := all
ifndef PREREQS_PRESENT

# First make sure that everything is there, then start over with pkg-config's answers.
$(GOALS):
	@conf/prereqs.sh$(if $(filter check check-long,$@), --tests)
	@$(MAKE) --no-print-directory -j$$(nproc) PREREQS_PRESENT=1 $@

clean:
	rm -rf build

# A source archive: build/dist/diloco-VERSION.tar.gz, with the whole text of the licence in it.
dist:
	@conf/dist.sh $(VERSION) build/dist

help:
	@sed -n 's/^#   make/  make/p' Makefile tests/tests.mk conf/install.mk; sed -n 's/^# V=1/\nV=1/p' Makefile

else

MODULES := libzmq libsodium libzstd libprotobuf-c inih jansson libsystemd
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(MODULES) libpcre2-8)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(MODULES))
WORKER_LIBS := $(shell $(PKG_CONFIG) --libs libpcre2-8)
MACHINE := $(shell $(CC) -dumpmachine)
CLANG := $(findstring clang,$(shell $(CC) --version | head -1))

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

# ---- objects, one archive a room ----
objects = $(patsubst %.c,$(B)/%.o,$(1))
include common/isa.mk
PROGRAM_SRC := daemon/dilocod.c daemon/dilococtl.c worker/diloco-worker.c worker/diloco-gateway.c

common_OBJ := $(call objects,$(filter-out $(LANES_SRC),$(wildcard common/*.c))) $(LANES_OBJ)
outer_opt_OBJ := $(call objects,$(filter-out $(VEC_SRC),$(wildcard outer_opt/*.c))) $(VEC_OBJ)
net_OBJ := $(call objects,$(wildcard net/*/*.c)) $(if $(wildcard net/transport/wire.proto),$(B)/gen/net/transport/wire.pb-c.o)
kernels_OBJ := $(call objects,$(wildcard kernels/*.c)) $(CPU_OBJ)
worker_OBJ := $(call objects,$(filter-out $(PROGRAM_SRC),$(wildcard worker/*.c worker/*/*.c)))
daemon_OBJ := $(call objects,$(filter-out $(PROGRAM_SRC),$(wildcard daemon/*.c daemon/*/*.c)))
ROOMS := daemon worker net outer_opt kernels common
ARCHIVES = $(foreach room,$(ROOMS),$(if $($(room)_OBJ),$(B)/$(room).a))
PROGRAMS := $(foreach src,$(wildcard $(PROGRAM_SRC)),$(B)/$(notdir $(basename $(src))))
# The gateway's end is not in it.
GATEWAY_SRC := worker/diloco-gateway.c worker/gateway.c worker/gate/gate_door.c worker/gate/gate_key_pair.c
LIBDILOCO_SRC := $(wildcard worker/libdiloco/*.c) $(filter-out $(GATEWAY_SRC),$(wildcard worker/gate/*.c))
LIBDILOCO_OBJ := $(call objects,$(LIBDILOCO_SRC)) $(common_OBJ)

say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),$(if $(V),,@),@printf '  %-7s %s\n' $(1) $(patsubst $(B)/%,%,$@);)

include kernels/cuda.mk

all: $(PROGRAMS) $(B)/libdiloco.so.0 $(B)/libdiloco.a $(CUDA_LIBRARY)
	@printf 'Built %s with %s%s. CUDA: %s\n' $(B) '$(CC)' '$(if $(SAN), ($(SAN) sanitizer))' \
		'$(or $(CUDA_WITHOUT),libdiloco-cuda.so by toolkit $(NVCC_VERSION))'

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

define archive_rule
$(B)/$(1).a: $$($(1)_OBJ)
	@mkdir -p $$(@D)
	$$(call say,AR)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach room,$(ROOMS),$(eval $(call archive_rule,$(room))))

# Anything that includes the generated header needs it to exist first.
$(net_OBJ) $(daemon_OBJ) $(call objects,$(PROGRAM_SRC) $(wildcard tests/*/*.c)): | $(if $(wildcard net/transport/wire.proto),$(B)/gen/net/transport/wire.pb-c.h)

$(B)/dilocod $(B)/dilococtl: $(B)/%: $(B)/daemon/%.o $(foreach room,daemon net outer_opt common,$(B)/$(room).a)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $^ $(LIBS) -o $@
$(B)/diloco-worker: $(B)/worker/diloco-worker.o $(foreach room,worker kernels common,$(B)/$(room).a)
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $(filter -fopenmp,$(OPENMP)) $^ $(LIBS) $(WORKER_LIBS) -ldnnl -o $@
# It needs neither kernels nor a model.
$(B)/diloco-gateway: $(call objects,$(GATEWAY_SRC)) $(B)/libdiloco.a
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) $^ -ldl -lm -o $@
$(B)/libdiloco.a: $(LIBDILOCO_OBJ)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
# Loaded into other people's programs: of common/ only what it uses, and nothing but the C library (tests/lint/library.sh).
$(B)/libdiloco.so.0: $(call objects,$(LIBDILOCO_SRC)) $(B)/common.a Makefile
	$(call say,LINK)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -shared -Wl,-soname,libdiloco.so.0 $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(filter-out Makefile,$^) -Wl,--as-needed -lm -o $@

include tests/tests.mk
include conf/install.mk
-include $(shell find $(B) -name test-data -prune -o -type f -name '*.d' -print 2>/dev/null)
endif

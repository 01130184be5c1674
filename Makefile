# SPDX-License-Identifier: Apache-2.0
# make              programs and library, under build/
# make check        all tests that take minutes, not hours; TESTS='FILE...' for some of them
# make lint         builds with -Werror by gcc and clang, and the checks of sources and pages
# make install      with prefix=/usr/local, DESTDIR=; uninstall; installcheck
# SAN=address,undefined builds and tests with sanitizers, apart from the rest.
# Further, with more time or tools, and told below: check-exhaustive, check-reference,
# check-mutants, check-tiktoken, check-neon, replica, bench.
VERSION := $(shell cat VERSION)
SOVERSION := 0

AR ?= ar
CFLAGS ?= -O2 -g
prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
datadir ?= $(prefix)/share
mandir ?= $(datadir)/man
INSTALL ?= install
JOBS ?= 2

SAN ?=
B := build$(if $(SAN),/san)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wwrite-strings -Wundef -Wformat=2
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN))
# The same bits from every compiler: no contraction, no fast-math (docs/numerics.md, N1).
K3_CFLAGS := -std=gnu11 -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -pthread \
	'-ffile-prefix-map=$(CURDIR)=.' $(WARN) $(SAN_FLAGS) \
	$(if $(SAN),-fno-sanitize-recover=all -fno-omit-frame-pointer)
K3_CPPFLAGS := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Ilib/include -Ilib
K3_LDFLAGS := -pthread $(SAN_FLAGS)
K3_LIBS := -ljq -lxxhash -lm

COMPILE = $(CC) $(K3_CPPFLAGS) $(CPPFLAGS) $(K3_CFLAGS) $(CFLAGS) $(SET_FLAGS) -MMD -MP
LINK = $(CC) $(K3_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(K3_LIBS)

# Nothing that was made with other flags is kept: everything depends on this file.
FLAGS := $(COMPILE) $(K3_LDFLAGS) $(LDFLAGS)
ifneq ($(FLAGS),$(file <$B/flags))
$(shell mkdir -p '$B')
$(file >$B/flags,$(FLAGS))
endif

# One object for each instruction set of this architecture.  Clang warns of loops that an
# instruction set without FMA does not let it vectorise.
ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
SETS_x86_64 := avx2 avx512
SETS_aarch64 := neon
OTHER_SETS := $(filter-out $(SETS_$(ARCH):%=lib/math/%.c),$(wildcard $(addprefix lib/math/,avx2.c avx512.c neon.c)))
$B/lib/math/%.o: SET_FLAGS += -O3 -fopenmp-simd -fno-trapping-math -Wno-pass-failed
$B/lib/engine/trunk_block.o: SET_FLAGS += -O3
$B/lib/math/avx2.o: SET_FLAGS += -mavx2 -mfma -mbmi -mbmi2
$B/lib/math/avx512.o: SET_FLAGS += -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi2 -mavx512vbmi -mpopcnt -mfma -mbmi -mbmi2 -mprefer-vector-width=512

LIB_OBJ := $(patsubst %.c,$B/%.o,$(filter-out $(OTHER_SETS),$(sort $(wildcard lib/*/*.c))))
PROGRAMS := $(patsubst cmd/%.c,%,$(sort $(wildcard cmd/k3-*.c)))
SCRIPTS := $(sort $(wildcard scripts/k3-*))
UNITS := $(patsubst tests/unit/%.c,$B/unit/%,$(sort $(wildcard tests/unit/*.c)))
PAGES := $(sort $(wildcard man/*.[1-8]))
DEMO := $(addprefix share/demo/,README.md config.json tokenizer_config.json tiktoken.model \
	model.safetensors.index.json) $(sort $(wildcard share/demo/*.safetensors))

.PHONY: all units shims check lint install uninstall installcheck clean
all: $(PROGRAMS:%=$B/bin/%) $B/libk3core.so $B/k3core.pc

$B/%.o: %.c $B/flags Makefile
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

$B/cmd/cli.o: K3_CPPFLAGS += -DK3_VERSION='"$(VERSION)"'
$B/cmd/cli.o: VERSION

$B/libk3core.a: $(LIB_OBJ)
	rm -f $@
	$(AR) rcsD $@ $^

$B/libk3core.so: $(LIB_OBJ) $B/flags
	$(LINK) -shared -Wl,-soname,libk3core.so.$(SOVERSION) $(if $(SAN),,-Wl,-z,defs)

PC = sed 's|@prefix@|$(prefix)|; s|@libdir@|$(libdir)|; s|@includedir@|$(includedir)|; s|@version@|$(VERSION)|' \
	scripts/k3core.pc.in
$B/k3core.pc: scripts/k3core.pc.in VERSION $B/flags
	$(PC) >$@

# The parts of a program are cmd/k3-NAME.c and cmd/NAME-*.c.
define program
$B/bin/$1: $(patsubst %.c,$B/%.o,cmd/$1.c cmd/cli.c $(sort $(wildcard $(1:k3-%=cmd/%-*.c))))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$p)))
$B/bin/%: $B/libk3core.a $B/flags
	@mkdir -p $(@D)
	$(LINK)

$B/unit/%: $B/tests/unit/%.o $B/libk3core.a $B/flags
	@mkdir -p $(@D)
	$(LINK)

# Libraries to be preloaded, for tests of what a disk can do, and what another machine has.
SHIMS := $B/shim/pread.so $B/shim/system.so
$(SHIMS): $B/shim/%.so: tests/shim/%.c $B/flags
	@mkdir -p $(@D)
	$(CC) $(K3_CPPFLAGS) $(WARN) -U_FILE_OFFSET_BITS -fPIC -shared -O2 -o $@ $< -ldl

shims: $(SHIMS)
units: $(UNITS) shims

.PHONY: prove
prove:
	@command -v prove >/dev/null || { echo "there is no prove, which comes with perl;" \
		"scripts/check installs whatever the tests need" >&2; exit 1; }

TESTS ?= $(UNITS) $(sort $(wildcard tests/cmd/*.t))
check: prove all units
	@# tests of signals want those that a shell may have told its children to ignore
	K3_BUILD="$$(cd '$B' && pwd)" env --default-signal=HUP,INT \
		prove -j$(JOBS) -e 'sh tests/run' $(TESTS)

lint: all
	$(MAKE) B=build/lint-gcc CC=gcc CFLAGS='-O2 -Werror' all units
	$(MAKE) B=build/lint-clang CC=clang CFLAGS='-O2 -Werror' all units
	K3_BUILD="$$(cd '$B' && pwd)" prove -j$(JOBS) -e 'sh tests/run' tests/cmd/lint-*.t

# exp, sigmoid and tanh over all 2^32 floats: some minutes.
.PHONY: check-exhaustive check-reference check-mutants check-tiktoken replica
check-exhaustive: tests/long/elementary.c $B/flags
	@mkdir -p $B/long
	$(COMPILE) $$(grep -qw fma /proc/cpuinfo && echo -mfma) -o $B/long/elementary $< -lm
	prove -v -e '' $B/long/elementary

# The shapes of tests/cmd/step-reference.t with more seeds.
check-reference: all
	K3_BUILD="$$(cd '$B' && pwd)" prove -v -e sh tests/long/reference.sh

# Does some test fail for every trap that is sprung, and for every rule that is broken?
check-mutants:
	prove -v -e sh tests/long/mutate.sh

# Ids against the npm package tiktoken: needs node, and the network the first time.
check-tiktoken: all
	tests/reference/tiktoken-check.sh

# The kernels for ARM, on any machine: Debian's gcc-aarch64-linux-gnu and qemu-user.
.PHONY: check-neon
NEON_CC ?= aarch64-linux-gnu-gcc
NEON_RUN ?= qemu-aarch64
NEON_SRC := $(addprefix lib/math/,code.c kernels.c neon.c portable.c) \
	$(addprefix lib/sys/,buf.c err.c num.c utf8.c)
check-neon:
	@mkdir -p $B/neon
	for t in sets code math_dot; do \
		$(NEON_CC) -static $(K3_CPPFLAGS) $(CPPFLAGS) $(filter-out -fsanitize%,$(K3_CFLAGS)) $(CFLAGS) \
			-O3 -fopenmp-simd -fno-trapping-math -o $B/neon/$$t tests/unit/$$t.c $(NEON_SRC) -lm || exit; \
	done
	prove -v -e '$(NEON_RUN)' $B/neon/sets $B/neon/code $B/neon/math_dot

# Rates of kernels and of layers of the released width; wants 20 GB of memory and of disk (docs/performance.md).
.PHONY: bench
bench: all $B/bench/kernels $B/bench/layers $B/bench/ring $B/bench/beside
	$B/bench/kernels
	$B/bench/layers
	sh tests/bench/step.sh
$B/bench/%: $B/tests/bench/%.o $B/libk3core.a $B/flags
	@mkdir -p $(@D)
	$(LINK)

# The full model with holes for data, and its index: sparse files of 1.56 TB under build/.
replica: all
	rm -rf build/replica
	python3 tests/reference/replica.py build/replica
	$B/bin/k3-index build/replica

# ---- installing ----

# Pages and texts name what they tell of; installed, it lies elsewhere.
PLACES = sed -e 's|share/demo|$(datadir)/k3/demo|g; s|scripts/k3npy.py|$(datadir)/k3/k3npy.py|g' \
	-e 's|^\.Os$$|.Os k3 $(VERSION)|'
bin := '$(DESTDIR)$(bindir)'
lib := '$(DESTDIR)$(libdir)'
include := '$(DESTDIR)$(includedir)/k3'
data := '$(DESTDIR)$(datadir)/k3'
man := '$(DESTDIR)$(mandir)'

install: all
	$(INSTALL) -d $(bin) $(lib)/pkgconfig $(include) $(data)/demo $(man)/man1 $(man)/man5 $(man)/man7
	$(INSTALL) $(PROGRAMS:%=$B/bin/%) $(SCRIPTS) $(bin)
	$(INSTALL) -m 644 $B/libk3core.a $(lib)
	$(INSTALL) -m 755 $B/libk3core.so $(lib)/libk3core.so.$(VERSION)
	ln -sf libk3core.so.$(VERSION) $(lib)/libk3core.so.$(SOVERSION)
	ln -sf libk3core.so.$(SOVERSION) $(lib)/libk3core.so
	$(PC) >$(lib)/pkgconfig/k3core.pc
	$(INSTALL) -m 644 $(sort $(wildcard lib/include/k3/*.h)) $(include)
	$(INSTALL) -m 644 $(DEMO) $(data)/demo
	$(INSTALL) -m 755 scripts/k3npy.py scripts/rehearse.py tests/reference/replica.py $(data)
	for page in $(PAGES); do \
		$(PLACES) "$$page" >$(man)/man"$${page##*.}/$${page##*/}" || exit; \
	done

uninstall:
	cd $(bin) && rm -f $(PROGRAMS) $(notdir $(SCRIPTS))
	cd $(lib) && rm -f libk3core.a libk3core.so* pkgconfig/k3core.pc
	rm -rf $(include) $(data)
	for page in $(PAGES); do rm -f $(man)/man"$${page##*.}/$${page##*/}"; done

installcheck:
	bindir=$(bin) libdir=$(lib) includedir='$(DESTDIR)$(includedir)' demo=$(data)/demo \
		mandir=$(man) SAN_FLAGS='$(SAN_FLAGS)' \
		sh tests/installcheck '$(CC)' '$(VERSION)'

clean:
	rm -rf build

-include $(wildcard $B/*/*.d $B/*/*/*.d)
.SECONDARY:

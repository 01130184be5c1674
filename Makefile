# SPDX-License-Identifier: Apache-2.0
# make           build programs and library under build/
# make check     all tests that take minutes, not hours
# make install   prefix=/usr/local DESTDIR=
VERSION := $(shell cat VERSION)
SOVERSION := 0

CC ?= gcc
AR ?= ar
CFLAGS ?= -O2 -g
prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
datadir ?= $(prefix)/share
INSTALL ?= install

# SAN=address,undefined builds everything, apart from the rest, with sanitizers.
SAN ?=
B := build$(if $(SAN),/san)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wwrite-strings -Wundef -Wformat=2
# The same bits from every compiler: no contraction, no fast-math (docs/numerics.md, N1).
K3_CFLAGS := -std=gnu11 -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -pthread \
	-ffile-prefix-map=$(CURDIR)=. $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
K3_CPPFLAGS := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Ilib/include -Ilib
K3_LDFLAGS := -pthread $(if $(SAN),-fsanitize=$(SAN))
K3_LIBS := -ljq -lxxhash -lm

LIB_SRC := $(sort $(wildcard lib/*/*.c))
PROGRAMS := $(patsubst cmd/%.c,%,$(sort $(wildcard cmd/k3-*.c)))
UNIT := $(patsubst tests/unit/%.c,%,$(sort $(wildcard tests/unit/*.c)))
LIB_OBJ := $(LIB_SRC:%.c=$B/%.o)
CMD_OBJ := $B/cmd/cli.o
BINS := $(PROGRAMS:%=$B/bin/%)
UNIT_BINS := $(UNIT:%=$B/unit/%)

.PHONY: all check install uninstall clean
all: $(BINS) $B/libk3core.so $B/k3core.pc

$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(K3_CPPFLAGS) $(CPPFLAGS) $(K3_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$B/cmd/cli.o: K3_CPPFLAGS += -DK3_VERSION='"$(VERSION)"'
$B/cmd/cli.o: VERSION Makefile

$B/libk3core.a: $(LIB_OBJ)
	rm -f $@
	$(AR) rcsD $@ $^

$B/libk3core.so: $(LIB_OBJ)
	$(CC) -shared -Wl,-soname,libk3core.so.$(SOVERSION) -Wl,-z,defs $(K3_LDFLAGS) $(LDFLAGS) -o $@ $^ $(K3_LIBS)

$B/k3core.pc: scripts/k3core.pc.in VERSION Makefile
	sed 's|@prefix@|$(prefix)|; s|@libdir@|$(libdir)|; s|@includedir@|$(includedir)|; s|@version@|$(VERSION)|' $< >$@

# A program's parts: cmd/k3-x.c and cmd/x-*.c.
define program
$B/bin/$1: $B/cmd/$1.o $(patsubst %.c,$B/%.o,$(sort $(wildcard $(1:k3-%=cmd/%-)*.c)))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$p)))
$B/bin/%: $(CMD_OBJ) $B/libk3core.a
	@mkdir -p $(@D)
	$(CC) $(K3_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(K3_LIBS)

$B/unit/%: $B/tests/unit/%.o $B/libk3core.a
	@mkdir -p $(@D)
	$(CC) $(K3_LDFLAGS) $(LDFLAGS) -o $@ $^ $(K3_LIBS)

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d) $(patsubst %.c,$B/%.d,$(wildcard cmd/*.c)) $(UNIT:%=$B/tests/unit/%.d)
.SECONDARY:

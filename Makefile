# make demo, make test: each does all its own set-up. Needed: Rust, a C
# compiler, Python 3.11 and Node 20.

CARGO   ?= cargo
PYTHON  ?= python3
NODE    ?= node
NPM     ?= npm
CC      ?= cc
LD      ?= ld
OBJCOPY ?= objcopy
SHARED  := ../shared
LIBRARY := target/release/libsession_awareness.so
VENV    := build/venv
PACKAGING := build/packaging
EXAMPLES := build/examples
STATIC  := build/static/libsession_awareness.a
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ABI     := 1

PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include

export SESSION_AWARENESS_LIB := $(CURDIR)/$(LIBRARY)

.PHONY: install wheel npm test-install demo live test build lint test-rust test-python test-node \
  test-examples conformance bench header clean models soak soak-short sanitize torture fuzz corruption \
  command instructions bench-parts bench-full aarch64

demo: build
	$(PYTHON) examples/gateway.py
	$(PYTHON) examples/terminal.py

# Real agents against the library: for people and for releases. See tests/live.
live: build
	$(PYTHON) tests/live/live.py --shared $(SHARED) $(LIVE)

test: lint test-rust models test-python test-node test-examples test-install conformance instructions soak-short

# What is linked with it asks for it by its ABI's name.
build:
	$(CARGO) build --release --locked
	ln -sf libsession_awareness.so $(LIBRARY).$(ABI)

# The command for people, target/release/aware: see README.
command:
	$(CARGO) build --release --locked --features command --bin aware

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets --features command -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --lib

# More damaged files than `make test` has time for; SEEDS says how many.
corruption:
	AWARE_CORRUPTION_SEEDS=$(or $(SEEDS),1000) $(CARGO) test --locked --test disk -- corruption

# Without the variable: these tests are of the library cargo builds beside them.
# With the command, which changes nothing in the library: one build serves both.
test-rust: tests/timeline/node_modules/ready
	env -u SESSION_AWARENESS_LIB $(CARGO) test --locked --features command

# What looks at the timeline in a browser.
tests/timeline/node_modules/ready: tests/timeline/package-lock.json
	cd tests/timeline && $(NPM) ci --ignore-scripts --no-audit --no-fund
	touch $@

# Leader, followers, wakes and closing under many orders of their threads;
# ORDERS=20 for twenty times as many. One model at a time: what belongs to the
# process would lead from one to another.
models:
	env -u SESSION_AWARENESS_LIB $(CARGO) test --locked --lib --features command,models race_tests -- --test-threads 1

# Sixteen threads over every verb, with flat memory. See tests/soak.
SOAK_SECONDS ?= 600
soak: build
	mkdir -p build
	$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -pthread -Iinclude tests/soak/soak.c \
	  -o build/soak -Ltarget/release -Wl,-rpath,$(CURDIR)/target/release -lsession_awareness
	folder=$$(mktemp -d) && build/soak $$folder $(SOAK_SECONDS) && rm -r $$folder

soak-short:
	$(MAKE) soak SOAK_SECONDS=20

# The tests under ThreadSanitizer, and under AddressSanitizer with LeakSanitizer.
sanitize:
	tests/sanitize/run.sh

$(VENV)/ready: bindings/python/requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

test-python: build $(VENV)/ready
	cd bindings/python && ../../$(VENV)/bin/python -m mypy
	cd bindings/python && ../../$(VENV)/bin/python -m pytest -q

bindings/node/node_modules/ready: bindings/node/package-lock.json
	cd bindings/node && $(NPM) ci --ignore-scripts --no-audit --no-fund
	touch $@

test-node: build bindings/node/node_modules/ready
	cd bindings/node && $(NPM) run --silent typecheck
	cd bindings/node && $(NPM) test --silent

# The story in each language, told the same to the byte.
test-examples: build bindings/node/node_modules/ready
	mkdir -p $(EXAMPLES)
	$(PYTHON) examples/gateway.py > $(EXAMPLES)/python.txt
	$(NODE) examples/gateway.mjs > $(EXAMPLES)/node.txt
	cmp $(EXAMPLES)/python.txt $(EXAMPLES)/node.txt
	$(PYTHON) examples/terminal.py > $(EXAMPLES)/terminal.txt

conformance: build
	@if [ -f $(SHARED)/conformance/run.py ]; then \
	  $(PYTHON) $(SHARED)/conformance/run.py --lib $(LIBRARY); \
	else \
	  echo "left out: the contract's scenarios, $(SHARED)/conformance is not here"; \
	fi

# One object in which all but the functions of the header is local: SQLite's
# symbols, and Rust's own, then meet no other copy of theirs in a host.
$(STATIC): build
	mkdir -p $(@D)
	$(LD) -r --gc-sections $$(sed -n 's/.*\b\(aware_[a-z_]*\)(.*/-u \1/p' include/session_awareness.h | sort -u) \
	  -o $(@D)/session_awareness.o target/release/libsession_awareness.a
	$(OBJCOPY) --wildcard --keep-global-symbol='aware_*' --strip-unneeded \
	  --remove-section=.llvmbc --remove-section=.llvmcmd $(@D)/session_awareness.o
	rm -f $@
	$(AR) rcs $@ $(@D)/session_awareness.o

install: build $(STATIC)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(LIBRARY) $(DESTDIR)$(LIBDIR)/libsession_awareness.so.$(VERSION)
	ln -sf libsession_awareness.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libsession_awareness.so.$(ABI)
	ln -sf libsession_awareness.so.$(ABI) $(DESTDIR)$(LIBDIR)/libsession_awareness.so
	install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)/libsession_awareness.a
	install -m 644 include/session_awareness.h $(DESTDIR)$(INCLUDEDIR)/session_awareness.h
	for pc in session-awareness session-awareness-static; do \
	  sed -e 's|@prefix@|$(PREFIX)|' -e 's|@libdir@|$(LIBDIR)|' -e 's|@includedir@|$(INCLUDEDIR)|' \
	    -e 's|@version@|$(VERSION)|' bindings/c/$$pc.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/$$pc.pc || exit 1; \
	done

$(PACKAGING)/ready: bindings/python/requirements-wheel.txt
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

wheel: build $(PACKAGING)/ready
	$(PACKAGING)/bin/python bindings/python/wheel.py $(LIBRARY) build/wheel

npm: build
	$(NODE) bindings/node/pack.js $(LIBRARY) build/npm

# What a host author installs, in folders that know nothing of this one.
test-install: build $(STATIC) wheel npm
	$(PYTHON) tests/install/c.py
	$(PYTHON) tests/install/cargo_c.py
	$(PYTHON) tests/install/wheel.py
	$(PYTHON) tests/install/npm.py

# Built across and run under qemu: needs the Rust target aarch64-unknown-linux-gnu, and Debian's
# gcc-aarch64-linux-gnu and qemu-user-static.
aarch64:
	$(PYTHON) tests/install/aarch64.py

# What `make test` does in a minute, at length and on the release build.
torture:
	env -u SESSION_AWARENESS_LIB TORTURE_KILLS=500 TORTURE_POINTS=800 TORTURE_FAULTS=300 \
	  $(CARGO) test --release --locked --test torture

# The instructions of the verbs that matter most, beside those in benches/instructions.json.
instructions: build
	$(PYTHON) benches/instructions.py $(LIBRARY)

# The table of docs/performance.md; ONLY="record drain" chooses rows, QUICK=1 is shorter, BLESS=1 writes it there.
bench: build bindings/node/node_modules/ready
	$(CARGO) bench --locked --bench table -- $(ONLY)

# Twice the rounds.
bench-full: export FULL = 1
bench-full: bench

bench-parts:
	$(CARGO) bench --locked --bench parts

# Coverage-guided fuzzing, FUZZ_TIME seconds a target: needs a nightly toolchain and
# `cargo install cargo-fuzz`. What it finds goes to fuzz/artifacts: put it into the
# target's corpus under a name that says what it is. `make test` runs every corpus.
FUZZ    := claude codex pi opencode opencode_file tail cursor key verbs
FUZZ_TIME ?= 120
fuzz:
	@if $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then \
	  for target in $(FUZZ); do \
	    mkdir -p fuzz/found/$$target; \
	    $(CARGO) +nightly fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- \
	      -max_total_time=$(FUZZ_TIME) -timeout=60 -rss_limit_mb=4096 -max_len=65536 || exit 1; \
	  done; \
	else \
	  echo "left out: fuzzing, there is no nightly toolchain with cargo-fuzz"; \
	fi

header:
	BLESS=1 $(CARGO) test --locked --test header

clean:
	$(CARGO) clean
	rm -rf build bindings/node/node_modules tests/timeline/node_modules

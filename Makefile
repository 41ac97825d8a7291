# make demo, make test: each does all its own set-up. Needed: Rust, a C
# compiler, Python 3.11 and Node 20.

CARGO   ?= cargo
PYTHON  ?= python3
NODE    ?= node
NPM     ?= npm
SHARED  := ../shared
LIBRARY := target/release/libsession_awareness.so
VENV    := build/venv
EXAMPLES := build/examples

export SESSION_AWARENESS_LIB := $(CURDIR)/$(LIBRARY)

.PHONY: demo live test build lint test-rust models test-python test-node test-examples conformance soak soak-short sanitize bench header clean torture fuzz corruption

demo: build
	$(PYTHON) examples/gateway.py
	$(PYTHON) examples/terminal.py

# Real agents against the library: for people and for releases. See tests/live.
live: build
	$(PYTHON) tests/live/live.py --shared $(SHARED) $(LIVE)

test: lint test-rust models test-python test-node test-examples conformance soak-short

build:
	$(CARGO) build --release --locked

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --lib

# More damaged files than `make test` has time for; SEEDS says how many.
corruption:
	AWARE_CORRUPTION_SEEDS=$(or $(SEEDS),1000) $(CARGO) test --locked --test disk -- corruption

# Without the variable: these tests are of the library cargo builds beside them.
test-rust:
	env -u SESSION_AWARENESS_LIB $(CARGO) test --locked

# Leader, followers, wakes and closing under many orders of their threads;
# ORDERS=20 for twenty times as many. One model at a time: what belongs to the
# process would lead from one to another.
models:
	env -u SESSION_AWARENESS_LIB $(CARGO) test --locked --lib --features models race_tests -- --test-threads 1

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

# What `make test` does in a minute, at length and on the release build.
torture:
	env -u SESSION_AWARENESS_LIB TORTURE_KILLS=500 TORTURE_POINTS=800 TORTURE_FAULTS=300 \
	  $(CARGO) test --release --locked --test torture

bench:
	$(CARGO) bench --locked

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
	rm -rf build bindings/node/node_modules

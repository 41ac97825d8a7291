#!/usr/bin/env bash
# run.sh [thread|address]...: the library's tests under ThreadSanitizer and
# under AddressSanitizer with LeakSanitizer. Needed: a nightly Rust, or a stable
# one that brings the sanitizers' runtimes (rustup's do), and a C compiler that
# knows -fsanitize, for SQLite.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/tests/sanitize
target=$(rustc -vV | sed -n 's/^host: //p')

leave_out() {
  echo "left out: the sanitizers: $1" >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
}

runtimes() { # of a toolchain, given as rustc's first argument
  local root
  root=$(rustc "$@" --print sysroot 2>/dev/null) || return 1
  compgen -G "$root/lib/rustlib/$target/lib/librustc-*_rt.tsan.a" >/dev/null
}

if runtimes +nightly; then
  cargo=(cargo +nightly)
elif runtimes; then
  # The flag is an unstable one; the runtimes are the same.
  export RUSTC_BOOTSTRAP=1
  cargo=(cargo)
else
  leave_out "no Rust with their runtimes is here"
fi

unset SESSION_AWARENESS_LIB
export RUST_BACKTRACE=0
export TSAN_OPTIONS="suppressions=$here/thread.txt history_size=4 exitcode=66"
export ASAN_OPTIONS="detect_leaks=1 strict_string_checks=1"
export LSAN_OPTIONS="suppressions=$here/leak.txt print_suppressions=0"

# A sanitizer's own memory, and its own time, is what these would measure.
skipped=(--skip in_little_memory --skip a_long_session_of_opencode_does_not_hold_up)

for sanitizer in "${@:-thread address}"; do
  for which in $sanitizer; do
    # The standard library is not built anew, so it is not seen into: that is
    # what the flag about ABI is for, and tests/sanitize/thread.txt.
    CFLAGS="-fsanitize=$which -fno-omit-frame-pointer" \
    RUSTFLAGS="-Zsanitizer=$which -Cunsafe-allow-abi-mismatch=sanitizer" \
    CARGO_TARGET_DIR="target/sanitize/$which" \
      "${cargo[@]}" test --locked --no-fail-fast --target "$target" --lib --test core --test upstream -- \
      "${skipped[@]}"
  done
done

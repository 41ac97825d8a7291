#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| session_awareness::fuzzing::run("codex", data));

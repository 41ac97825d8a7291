use super::*;
#[test]
#[ignore]
fn lexer_only() {
    static NONE: sift::Want = sift::Want::Fields(&[]);
    static TYPE: sift::Want = sift::Want::Fields(&[("type", sift::Want::Scalar)]);
    for f in ["/tmp/upbench/claude.jsonl", "/tmp/upbench/codex.jsonl"] {
        for (n, w) in [("none", &NONE), ("type", &TYPE)] {
            let mut s = Source::open(std::path::Path::new(f)).unwrap();
            let end = s.end();
            let t = std::time::Instant::now();
            let sec = Secret::new([0; 32]);
            let mut k = 0u64;
            rows::read(&mut s, 0, end, Slice::WHOLE, &sec, w, |_| { k += 1; true }).unwrap();
            println!("{f} {n} {k} {:.0} MB/s", end as f64 / 1e6 / t.elapsed().as_secs_f64());
        }
        let t = std::time::Instant::now();
        let b = std::fs::read(f).unwrap();
        let t2 = std::time::Instant::now();
        let k = memchr::memchr_iter(b'\n', &b).count();
        println!("lines {k} read {:?} memchr {:?}", t2 - t, t2.elapsed());
        let t = std::time::Instant::now();
        let mut m = 0;
        for l in b.split(|c| *c == b'\n') { if !l.is_empty() { let v: Result<serde::de::IgnoredAny,_> = serde_json::from_slice(l); m += v.is_ok() as usize; } }
        println!("serde ignored {m} {:.0} MB/s", b.len() as f64 / 1e6 / t.elapsed().as_secs_f64());
    }
}

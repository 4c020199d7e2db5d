//! Every pair of formats of keys and values, rotated or not, through what happens to a past: cut, branched, regenerated,
//! evicted, written to disk and read after a restart. Each answer is that of an engine that remembers nothing.

use super::support::*;
use engine::state::KvFormats;
use engine::{Engine, EngineLimits, EngineRequest};
use kernels::format::Format;
use proptest::prelude::*;

fn pairs() -> Vec<KvFormats> {
    use Format::*;
    let formats = [F16, Q8_0, Q4_0, TQ4, TQ3];
    let all = formats.into_iter().flat_map(|key| formats.map(|value| KvFormats::new(key, value)));
    let rotated = [(Q8_0, Q8_0), (Q8_0, Q4_0), (Q4_0, Q4_0), (Q4_0, TQ3)];
    all.chain(rotated.map(|(key, value)| KvFormats::new(key, value).with_rotation(true))).collect()
}

// Rows that go through the model together and alone differ in their last bits, and a value on the border of two codes
// falls to either side of it.
fn holds(ours: &Answer, cold: &Answer, kv: KvFormats) -> Result<(), TestCaseError> {
    let distance = (ours.logprobs[0] - cold.logprobs[0]).abs();
    prop_assert!(distance <= 0.15, "{kv:?}: {} and {}", ours.logprobs[0], cold.logprobs[0]);
    Ok(())
}

fn check(kv: KvFormats, seed: u32, cut: usize) -> Result<(), TestCaseError> {
    let asked = |tokens: &[u32]| EngineRequest { kv, ..request(tokens, 2) };
    let cold = |tokens: &[u32]| answer(&mut engine("dense-tied", LIMITS), asked(tokens));
    let folder = tempfile::tempdir().unwrap();
    // Little memory, so that pasts leave it.
    let start = || -> Engine {
        let mut engine = engine("dense-tied", EngineLimits { memory_bytes: 6 << 20, ..LIMITS });
        engine.use_disk(disk(folder.path()));
        engine
    };
    let first = words(290, seed);
    let mut engine = start();
    let said = answer(&mut engine, asked(&first));
    holds(&said, &cold(&first), kv)?;
    // The next turn, one that goes back behind a cut, and two branches at once.
    let next = [&first[..], &said.tokens, &words(9, seed + 1)].concat();
    let cut = [&first[..cut], &words(5, seed + 2)].concat();
    for tokens in [&next, &cut] {
        let ours = answer(&mut engine, asked(tokens));
        prop_assert!(ours.report.reused_tokens > 0 || tokens == &cut, "{kv:?}: {:?}", ours.report);
        holds(&ours, &cold(tokens), kv)?;
    }
    let branches = [3, 4].map(|other| [&first[..260], &words(6, seed + other)].concat());
    let both = answers(&mut engine, branches.iter().map(|tokens| asked(tokens)).collect());
    for (ours, tokens) in both.iter().zip(&branches) {
        holds(ours, &cold(tokens), kv)?;
    }
    engine.save_all();
    prop_assert_eq!(engine.check_invariants(), Ok(()));
    drop(engine);
    let mut engine = start();
    let back = answer(&mut engine, asked(&next));
    prop_assert!(back.report.reused_tokens >= 200, "{kv:?}: {:?}", back.report);
    holds(&back, &cold(&next), kv)?;
    // Other formats, and the same ones with another rotation, do not read it.
    let other =
        if kv.rotated == [false; 2] { kv.with_rotation(true) } else { KvFormats::new(Format::F32, Format::F16) };
    if other != kv {
        let missed = answer(&mut engine, EngineRequest { kv: other, ..request(&next, 1) });
        prop_assert_eq!(missed.report.reused_tokens, 0);
    }
    prop_assert_eq!(engine.take_notes(), [""; 0]);
    Ok(())
}

#[test]
fn every_pair_lives_through_everything() {
    for (seed, kv) in (0..).zip(pairs()) {
        check(kv, 10 * seed, 270 - 7 * seed as usize % 200).unwrap_or_else(|why| panic!("{why}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]
    #[test]
    fn any_pair_with_any_cut(kv in prop::sample::select(pairs()), seed in 0u32..1000, cut in 20usize..288) {
        check(kv, seed, cut)?;
    }
}

//! Hostile inputs into every parser, some thousand, and the runner itself with a planted fault.

use kernels::format::Format;
use proof::hostile::{Corpus, HostileTarget, TARGETS, Until, corpus_folder, try_target};
use std::time::Duration;

/// Inputs of each target in seconds of a test.
const INPUTS: u64 = 3000;

#[test]
fn no_hostile_bytes_break_a_parser() {
    for target in TARGETS {
        let corpus = Corpus::of(&target).unwrap();
        // Compiling a grammar, a configuration, and a store take milliseconds.
        let slow = ["schemas", "settings", "tokenizer", "memories", "summaries", "import", "journal"];
        let is_slow = slow.contains(&target.name);
        let inputs = if is_slow { INPUTS / 10 } else { INPUTS };
        let report = try_target(&target, &corpus, 1, 2, Until::Inputs(inputs));
        println!(
            "{} {} inputs, {:.0} a second, slowest {:?}",
            target.name,
            report.inputs,
            report.per_second(),
            report.slowest
        );
        assert!(report.failures.is_empty(), "{report:#?}");
        assert_eq!(report.inputs, inputs);
        let share = report.taken as f64 / inputs as f64;
        assert!(
            (0.01..0.99).contains(&share),
            "{}: {share} of the inputs are taken, so that little is tried",
            target.name
        );
    }
}

/// The pasts in the corpus are as the engine writes them. `BLESS=1` writes them anew.
#[test]
fn the_corpus_has_pasts_as_they_are_written_today() {
    let folder = tempfile::tempdir().unwrap();
    for (tokens, states) in [(40, Format::F32), (256, Format::Q8_0), (300, Format::BF16)] {
        let input = engine::hostile_disk::sound_input(folder.path(), tokens, states).unwrap();
        let file = corpus_folder("state").join(format!("{tokens}-{}", states.name()));
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &input).unwrap();
        }
        assert!(std::fs::read(&file).unwrap() == input, "{} is another: run this test with BLESS=1", file.display());
    }
}

type Take = fn(&[u8]) -> Result<bool, String>;

fn target(take: Take) -> HostileTarget {
    HostileTarget { name: "broken", corpus: "chat", take, most_ms: 20, most_bytes: 1 << 20 }
}

#[test]
fn what_is_broken_is_found() {
    let corpus = Corpus { inputs: vec![b"{\"a\":1}".to_vec()] };
    let broken: [(Take, &str); 4] = [
        (|bytes| if bytes.len() > 9 { panic!("too long") } else { Ok(true) }, "it panics: too long"),
        (|bytes| if bytes.first() == Some(&b'[') { Err("a list".to_owned()) } else { Ok(false) }, "a list"),
        (
            |bytes| {
                if bytes.len() == 5 {
                    std::thread::sleep(Duration::from_millis(300));
                }
                Ok(true)
            },
            "it takes 3",
        ),
        (|bytes| Ok(vec![0_u8; bytes.len() << 18].len() > 9), "it takes"),
    ];
    for (take, why) in broken {
        let report = try_target(&target(take), &corpus, 1, 1, Until::Inputs(2000));
        let failure = report.failures.first().unwrap_or_else(|| panic!("{why} is not found"));
        assert!(failure.why.starts_with(why), "{failure:?}");
        assert!(!failure.input.is_empty());
    }
    let leaking = target(|bytes| {
        std::mem::forget(vec![1_u8; bytes.len().min(1 << 10) << 8]);
        Ok(true)
    });
    let report = try_target(&leaking, &corpus, 1, 1, Until::Inputs(100_000));
    assert!(report.failures.iter().any(|failure| failure.why.contains("still held")), "{report:?}");
    // A sound one is sound, and by time as well.
    let report =
        try_target(&target(|bytes| Ok(!bytes.is_empty())), &corpus, 1, 2, Until::Time(Duration::from_millis(50)));
    assert!(report.failures.is_empty() && report.inputs > 100, "{report:?}");
}

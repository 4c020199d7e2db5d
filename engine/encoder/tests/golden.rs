//! Vectors as the reference implementation computes them (golden/make.py), of a tiny network and of all-MiniLM-L6-v2.

use encoder::{Encoder, likeness};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Deserialize)]
struct Expected {
    text: String,
    vector: Vec<f32>,
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// Returns the smallest cosine between a vector and the expected one.
fn smallest(encoder: &Encoder, vectors: &Path) -> f32 {
    let expected: Vec<Expected> = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    assert!(expected.len() > 5);
    let cosines = expected.iter().map(|expected| likeness(&encoder.encode(&expected.text), &expected.vector));
    cosines.fold(f32::INFINITY, f32::min)
}

#[test]
fn a_tiny_network_as_the_reference() {
    for threads in [1, 2] {
        let encoder = Encoder::open(&golden("tiny"), threads).unwrap();
        let cosine = smallest(&encoder, &golden("tiny/vectors.json"));
        assert!(cosine >= 0.9999, "{cosine}");
        assert_eq!((encoder.width(), encoder.name().len()), (24, "00000000-24".len()));
    }
}

#[test]
fn the_default_encoder_as_the_reference() {
    let Some(folder) = std::env::var_os("REPRISE_ENCODER").map(PathBuf::from) else {
        assert!(std::env::var_os("REQUIRE_ENCODER").is_none(), "REPRISE_ENCODER names no folder of an encoder");
        return println!("skipped: REPRISE_ENCODER names no folder of an encoder");
    };
    let encoder = Encoder::open(&folder, 2).unwrap();
    let cosine = smallest(&encoder, &golden("minilm.json"));
    assert!(cosine >= 0.9999, "{cosine}");
    let sentence = "We got a puppy last spring, he's called Biscuit";
    let times = (0..30).map(|_| {
        let began = Instant::now();
        encoder.encode(sentence);
        began.elapsed()
    });
    println!("smallest cosine {cosine}, a sentence in {:?}", times.min().unwrap_or_default());
}

#[test]
fn wrong_files_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &&str| std::fs::copy(golden("tiny").join(*name), folder.path().join(*name)).unwrap();
    let error = || Encoder::open(folder.path(), 1).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error().contains("config.json"), "{}", error());
    let files = ["config.json", "tokenizer.json", "model.safetensors"];
    let copied: u64 = files.iter().map(copy).sum();
    assert!(copied > 0);
    assert_eq!(error(), "");
    let weights = folder.path().join("model.safetensors");
    let config = folder.path().join("config.json");
    let whole = std::fs::read(&weights).unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    for cut in [0, 7, 100, whole.len() / 2] {
        std::fs::write(&weights, &whole[..cut]).unwrap();
        assert!(error().contains("model.safetensors"), "{cut}: {}", error());
    }
    std::fs::write(&weights, [&u64::MAX.to_le_bytes(), &whole[8..]].concat()).unwrap();
    assert!(error().contains("no safetensors file"), "{}", error());
    std::fs::write(&weights, &whole).unwrap();
    for (from, to, told) in [
        ("\"hidden_size\": 24", "\"hidden_size\": 48", "its shape is"),
        ("\"hidden_size\": 24", "\"hidden_size\": 25", "no multiple"),
        ("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "no such tensor"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", "it is from 1"),
        ("\"vocab_size\": ", "\"vocab_size\": 1, \"was\": ", "beyond the network"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&config, text.replace(from, to)).unwrap();
        assert!(error().contains(told), "{to}: {}", error());
    }
}

#[test]
fn every_text_has_a_vector() {
    let encoder = Encoder::open(&golden("tiny"), 1).unwrap();
    for text in ["", "\u{0}\u{FEFF}", "🙂", &"ж".repeat(5000), &"a ".repeat(100_000)] {
        let vector = encoder.encode(text);
        assert!(vector.len() == 24 && vector.iter().all(|x| x.is_finite()), "{text:.20}");
    }
}

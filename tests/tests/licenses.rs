//! The licences of what the binary is made of: it carries their texts, and all of them are allowed. And where the crates
//! come from.

use std::process::Command;
use tests::house::files::root;
use tests::licenses::{HEAD, allowed, everything, linked, list, of_the_page, taken, third_party};

/// `BLESS=1` writes the file anew: read what it adds.
#[test]
fn the_binary_carries_the_licences_of_all_that_it_is_made_of() {
    let file = root().join("THIRD-PARTY.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, third_party()).unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let head = HEAD.to_owned() + &list(&linked(), &allowed());
    assert!(
        text.starts_with(&(head + "\n---")),
        "THIRD-PARTY.txt names other crates than Cargo.lock: run this test with BLESS=1"
    );
    assert!(text.ends_with(&of_the_page()), "THIRD-PARTY.txt lacks Preact's licence: run this test with BLESS=1");
    // Each crate whose licence is not Apache's alone has its own text.
    let texts = text.split_once("\n---").unwrap().1;
    for one in linked() {
        let taken = taken(&one.license, &allowed()).unwrap();
        let name = format!("{} {}", one.name, one.version);
        let is_named = texts.lines().any(|line| line.split(", ").any(|named| named == name));
        assert!(is_named || taken.iter().all(|license| license == "Apache-2.0"), "{name}: {taken:?}");
    }
    let output = Command::new(tests::reprise::binary()).arg("licenses").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let own = std::fs::read_to_string(root().join("LICENSE")).unwrap();
    assert!(output.status.success() && printed.starts_with(&own) && printed.ends_with(&text), "{printed:.300}");
}

#[test]
fn every_crate_has_a_licence_that_is_allowed() {
    let allowed = allowed();
    let wrong: Vec<String> = everything()
        .iter()
        .filter_map(|one| Some(format!("{} {}: {}", one.name, one.version, taken(&one.license, &allowed).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let allowed = ["Apache-2.0", "MIT", "Unicode-3.0"].map(str::to_owned);
    let of = |license: &str| taken(license, &allowed).map(|taken| taken.into_iter().collect::<Vec<_>>().join(" "));
    assert_eq!(of("MIT OR Apache-2.0").unwrap(), "Apache-2.0");
    assert_eq!(of("MIT/GPL-3.0").unwrap(), "MIT");
    assert_eq!(of("(MIT OR Apache-2.0) AND Unicode-3.0").unwrap(), "Apache-2.0 Unicode-3.0");
    assert_eq!(of("Apache-2.0 WITH LLVM-exception OR MIT").unwrap(), "MIT");
    for wrong in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH LLVM-exception", "", "(MIT"] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}

/// A crate of another registry, or of a repository that can change, is nothing that a build may fetch.
#[test]
fn every_crate_comes_from_crates_io_with_a_checksum() {
    let lock: toml::Table = toml::from_str(&std::fs::read_to_string(root().join("Cargo.lock")).unwrap()).unwrap();
    let mut count = 0;
    for package in lock["package"].as_array().unwrap() {
        let Some(source) = package.get("source") else { continue };
        assert_eq!(source.as_str(), Some("registry+https://github.com/rust-lang/crates.io-index"), "{package}");
        assert!(package.get("checksum").is_some(), "{package}");
        count += 1;
    }
    assert!(count > 100, "{count} crates");
}

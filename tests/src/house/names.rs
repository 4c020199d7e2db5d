//! One name for one thing: no public type of a crate has the name of another crate's, and words that were given up do not
//! come back.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use toml::Table;

use super::allowed::Finding;
use super::source::{Source, line};

pub fn types_of_several_crates(sources: &[Source]) -> Vec<Finding> {
    let defined = Regex::new(r"\bpub (?:struct|enum|trait|type|union) (\w+)").expect("a pattern");
    let mut crates: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let Some((member, _)) = source.path.split_once("/src/") else { continue };
        for found in defined.captures_iter(&source.code) {
            let place = format!("{}:{}", source.path, line(&source.code, found.get_match().start()));
            let name = &source.code[found.get(1).map(|name| name.range()).unwrap_or_default()];
            crates.entry(name).or_default().entry(member).or_insert(place);
        }
    }
    let several = crates.into_iter().filter(|(_, members)| members.len() > 1);
    let finding = |(name, members): (&str, BTreeMap<&str, String>)| {
        let places: Vec<String> = members.into_values().collect();
        Finding { key: name.to_string(), complaint: format!("{name} names several types: {}", places.join(", ")) }
    };
    several.map(finding).collect()
}

/// Identifiers that are no longer said. `old` has what to say instead.
pub fn old_words<'a>(rust: impl Iterator<Item = (&'a str, String)>, old: &Table) -> Vec<Finding> {
    let words = Regex::new(r"\w+").expect("a pattern");
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (path, code) in rust {
        let member =
            ["/src/", "/tests/", "/benches/", "/examples/"].iter().filter_map(|folder| path.find(folder)).min();
        for word in words.find_iter(&code).filter(|word| old.contains_key(word.as_str())) {
            let key = format!("{} in {}", word.as_str(), &path[..member.unwrap_or(path.len())]);
            if seen.insert(key.clone()) {
                let better = old[word.as_str()].as_str().unwrap_or_default();
                let line = line(&code, word.start());
                found.push(Finding { key, complaint: format!("{path}:{line}: for {} say {better}", word.as_str()) });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{files::File, source};

    #[test]
    fn a_name_of_two_crates_is_found() {
        let files = [
            File::new("a/src/lib.rs", "pub struct Kind;\npub enum Own {}\npub(crate) struct Inside;"),
            File::new("b/src/x.rs", "\npub enum Kind {}\nstruct Own;\npub(crate) struct Inside;"),
            File::new("b/src/y.rs", "pub use a::Kind;\npub type Twice = u8;"),
            File::new("b/src/z.rs", "pub type Twice = u8;\n#[cfg(test)]\nmod tests { pub struct Own; }"),
        ];
        let found = types_of_several_crates(&source::product(&files));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].complaint, "Kind names several types: a/src/lib.rs:1, b/src/x.rs:2");
    }

    #[test]
    fn an_old_word_is_found_as_an_identifier() {
        let old = "Keeper = \"StoreQueue\"".parse().expect("TOML");
        let files = [
            File::new("a/src/x.rs", "// Keeper\nlet a = \"Keeper\";\nstruct Keeper;\nimpl Keeper {}"),
            File::new("a/tests/x.rs", "use a::Keeper;"),
            File::new("b/c/tests/x.rs", "struct Keepers;\nfn f(_: a::Keeper) {}"),
        ];
        let found = old_words(source::rust_with_tests(&files), &old);
        let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
        assert_eq!(keys, ["Keeper in a", "Keeper in b/c"]);
        assert_eq!(found[0].complaint, "a/src/x.rs:3: for Keeper say StoreQueue");
    }
}

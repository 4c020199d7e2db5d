//! The licences of what the binary is made of, from cargo and from the crates' own sources. THIRD-PARTY.txt is what comes
//! of it, and `reprise licenses` prints that.

use crate::house::files::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignCrate {
    pub name: String,
    pub version: String,
    /// Licence of the manifest: `MIT OR Apache-2.0`.
    pub license: String,
}

/// Lists the crates that are linked into the binary on the processors that it is built for.
pub fn linked() -> BTreeSet<ForeignCrate> {
    let targets = ["--target", "x86_64-unknown-linux-gnu", "--target", "aarch64-unknown-linux-gnu"];
    tree(&[&["--package", "reprise", "--edges", "normal"], &targets[..]].concat())
}

/// The same, and what builds and tests it.
pub fn everything() -> BTreeSet<ForeignCrate> {
    tree(&["--workspace"])
}

fn tree(arguments: &[&str]) -> BTreeSet<ForeignCrate> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{l}"]).args(arguments);
    let output = command.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let found = text.lines().filter_map(|line| {
        let (package, license) = line.trim_end_matches(" (*)").split_once('|')?;
        let (name, version) = package.split_once(" v")?;
        // Ours have their folder behind the version.
        let (version, about) = version.split_once(' ').unwrap_or((version, ""));
        let is_ours = about.starts_with("(/");
        let found = ForeignCrate { name: name.into(), version: version.into(), license: license.into() };
        (!is_ours).then_some(found)
    });
    found.collect()
}

/// Chooses among the licences of an expression, the allowed ones first in their order. An error: none of them is
/// allowed.
pub fn taken(license: &str, allowed: &[String]) -> Result<BTreeSet<String>, String> {
    let spaced = license.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (found, rest) = either(&words, allowed);
    if !rest.is_empty() {
        return Err(format!("{license:?} is no licence expression"));
    }
    found.ok_or_else(|| format!("{license:?} offers nothing that deny.toml allows"))
}

type Taken<'w, 'a> = (Option<BTreeSet<String>>, &'a [&'w str]);

fn either<'w, 'a>(words: &'a [&'w str], allowed: &[String]) -> Taken<'w, 'a> {
    let (mut best, mut rest) = all_of(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (other, left) = all_of(more, allowed);
        let rank = |taken: &Option<BTreeSet<String>>| {
            let ranks = taken.iter().flatten().filter_map(|one| allowed.iter().position(|known| known == one));
            if taken.is_some() { ranks.max().unwrap_or(0) } else { usize::MAX }
        };
        if rank(&other) < rank(&best) {
            best = other;
        }
        rest = left;
    }
    (best, rest)
}

fn all_of<'w, 'a>(words: &'a [&'w str], allowed: &[String]) -> Taken<'w, 'a> {
    let (mut all, mut rest) = one(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (other, left) = one(more, allowed);
        all = all.zip(other).map(|(all, other)| &all | &other);
        rest = left;
    }
    (all, rest)
}

fn one<'w, 'a>(words: &'a [&'w str], allowed: &[String]) -> Taken<'w, 'a> {
    match words {
        ["(", inner @ ..] => match either(inner, allowed) {
            (found, [")", rest @ ..]) => (found, rest),
            (_, rest) => (None, rest),
        },
        [name, "WITH", exception, rest @ ..] => (known(&format!("{name} WITH {exception}"), allowed), rest),
        [name, rest @ ..] => (known(name, allowed), rest),
        [] => (None, words),
    }
}

fn known(name: &str, allowed: &[String]) -> Option<BTreeSet<String>> {
    allowed.iter().any(|known| known == name).then(|| BTreeSet::from([name.to_owned()]))
}

pub fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let table: toml::Table = toml::from_str(&text).expect("TOML");
    let allowed = table["licenses"]["allow"].as_array().expect("licenses.allow").iter();
    allowed.map(|name| name.as_str().expect("a name").to_owned()).collect()
}

/// The list at the head of THIRD-PARTY.txt: each crate, its licence, and which of several are taken.
pub fn list(crates: &BTreeSet<ForeignCrate>, allowed: &[String]) -> String {
    let line = |one: &ForeignCrate| {
        let taken = taken(&one.license, allowed).unwrap_or_else(|why| panic!("{}: {why}", one.name));
        let taken: Vec<String> = taken.into_iter().collect();
        format!("{} {}: {} (taken: {})\n", one.name, one.version, one.license, taken.join(", "))
    };
    crates.iter().map(line).collect()
}

pub const HEAD: &str = "\
What the program `reprise` is made of beside its own code (MIT, see LICENSE): the crates below, each under the licence that
its authors chose, Rust's standard library (MIT OR Apache-2.0, taken: Apache-2.0, by The Rust Project Developers), SQLite,
which its authors gave to the public domain, and in the page at `/` Preact (MIT). The licences follow the list. Written by
`cargo test --package tests --test licenses` with BLESS=1.

";

/// The whole file: needs the sources of all crates, as a build leaves them.
pub fn third_party() -> String {
    let (crates, allowed) = (linked(), allowed());
    let sources = sources();
    // The text of each licence, and of which crates it is.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in &crates {
        let (folder, authors) = &sources[&(one.name.clone(), one.version.clone())];
        let taken = taken(&one.license, &allowed).expect("an allowed licence");
        let name = format!("{} {}", one.name, one.version);
        for text in own_texts(folder, &taken, authors) {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let apache = standard_apache(&sources);
    let mut file = HEAD.to_owned() + &list(&crates, &allowed);
    file += &format!("\n{RULE}\nApache-2.0, for all of the above that say so\n{RULE}\n\n{apache}\n");
    for (text, names) in texts {
        file += &format!("\n{RULE}\n{}\n{RULE}\n\n{text}\n", names.join(", "));
    }
    file + &of_the_page()
}

/// Licence of what is in the page at `/` beside its own code.
pub fn of_the_page() -> String {
    let text = std::fs::read_to_string(root().join("services/console/LICENSE-preact")).expect("text");
    format!("\n{RULE}\nPreact, in the page at `/`\n{RULE}\n\n{}\n", tidy(&text))
}

const RULE: &str = "------------------------------------------------------------------------";

/// Returns the folder of the sources and the authors, by name and version.
fn sources() -> BTreeMap<(String, String), (PathBuf, String)> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked"]);
    let output = command.current_dir(root()).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter().map(|package| {
        let text = |key: &str| package[key].as_str().expect("text").to_owned();
        let folder = Path::new(&text("manifest_path")).parent().expect("a folder").to_owned();
        let authors = package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let authors: Vec<&str> = authors.collect();
        ((text("name"), text("version")), (folder, authors.join(", ")))
    });
    packages.collect()
}

/// The crate's own licence files, without those of licences that are not taken. All that Apache-2.0 asks for beside its
/// text is the notice.
fn own_texts(folder: &Path, taken: &BTreeSet<String>, authors: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let only_apache = taken.iter().all(|one| one == "Apache-2.0");
    for file in files.iter().filter(|file| file.is_file()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_notice = name.starts_with("NOTICE");
        let is_license = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"];
        let is_license = is_license.iter().any(|begin| name.starts_with(begin)) && !only_apache;
        let is_not_taken = name.contains("APACHE") || name.contains("MIT") && !taken.contains("MIT");
        if is_notice || is_license && !is_not_taken {
            texts.push(tidy(&std::fs::read_to_string(file).expect("text")));
        }
    }
    if texts.is_empty() && !only_apache {
        let names: Vec<&str> = taken.iter().map(String::as_str).collect();
        assert_eq!(names, ["MIT"], "{}: no licence file", folder.display());
        let authors = if authors.is_empty() { "its contributors" } else { authors };
        texts.push(format!("Copyright (c) {authors}\n\n{MIT}"));
    }
    texts
}

fn standard_apache(sources: &BTreeMap<(String, String), (PathBuf, String)>) -> String {
    let folders = sources.iter().filter(|((name, _), _)| name == "anyhow").map(|(_, (folder, _))| folder);
    let file = folders.map(|folder| folder.join("LICENSE-APACHE")).next().expect("a crate with the text");
    tidy(&std::fs::read_to_string(file).expect("text"))
}

/// Texts that differ only in the ends of their lines are one.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Text for crates that name the licence and carry none.
const MIT: &str = "\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the \"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.";

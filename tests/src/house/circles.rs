//! No circle of files in a crate, except between a module and the modules below it: of two modules side by side one is
//! read first.

use std::collections::{BTreeMap, BTreeSet};

use super::allowed::Finding;
use super::modules::{Edges, Modules};
use super::source::{Source, children};

/// Every pair of files that stand side by side in a circle. A longer circle is gone when one of its pairs is.
pub fn circles(sources: &[Source]) -> Vec<Finding> {
    let roots =
        sources.iter().filter(|source| source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs"));
    roots.flat_map(|root| findings(root.path, &Modules::of(root.path, sources).edges())).collect()
}

fn findings(root: &str, edges: &Edges) -> Vec<Finding> {
    let mut found = BTreeMap::new();
    let files: BTreeSet<&str> = edges.keys().flat_map(|(from, to)| [*from, *to]).collect();
    // A circle is allowed where one of its files holds all the others. So each folder is looked at without the file that
    // holds it, and a circle there that leaves a child of the folder is one.
    let above = children(root);
    let folders = files.iter().flat_map(|file| file.match_indices('/').map(|(end, _)| &file[..=end]));
    let folders: BTreeSet<&str> = folders.filter(|folder| folder.starts_with(&above)).collect();
    for folder in folders {
        let room = |file: &str| {
            let below = file.strip_prefix(folder).filter(|_| file != root)?;
            Some(below.split(['/', '.']).next().unwrap_or_default().to_string())
        };
        let inside: BTreeMap<&str, BTreeSet<&str>> = files
            .iter()
            .filter(|file| room(file).is_some())
            .map(|file| {
                (
                    *file,
                    edges.keys().filter(|(from, to)| from == file && room(to).is_some()).map(|(_, to)| *to).collect(),
                )
            })
            .collect();
        for (from, targets) in &inside {
            for to in targets.iter().filter(|to| room(from) != room(to)) {
                if let Some(back) = way(&inside, to, from) {
                    let pair = if from < to { (*from, *to) } else { (*to, *from) };
                    found.entry(pair).or_insert_with(|| complaint(edges, from, &back));
                }
            }
        }
    }
    let stem = |file: &str| file.trim_end_matches(".rs").to_string();
    let finding = |((one, other), complaint): ((&str, &str), String)| {
        let key = format!("{} + {}", stem(one), stem(other));
        Finding { key, complaint }
    };
    found.into_iter().map(finding).collect()
}

/// The shortest way, with both ends.
fn way<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
    let mut came_from = BTreeMap::from([(from, from)]);
    let mut next = vec![from];
    while !next.is_empty() && !came_from.contains_key(to) {
        let mut further = Vec::new();
        for file in next {
            for target in graph.get(file).into_iter().flatten() {
                came_from.entry(*target).or_insert_with(|| {
                    further.push(*target);
                    file
                });
            }
        }
        next = further;
    }
    let mut way = vec![*came_from.get_key_value(to)?.0];
    while let Some(file) = way.last().filter(|file| **file != from) {
        way.push(came_from[file]);
    }
    way.reverse();
    Some(way)
}

fn complaint(edges: &Edges, from: &str, back: &[&str]) -> String {
    let mut text = format!("a circle: {from}");
    let mut at = from;
    for to in back {
        let names: Vec<&str> = edges[&(at, *to)].iter().map(String::as_str).collect();
        text += &format!("\n    uses {} of {to}", names.join(", "));
        at = to;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{files::File, source};

    /// The pairs of the circles of a crate `c`, without its folder.
    fn pairs(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new(&format!("c/src/{path}"), text)).collect();
        circles(&source::product(&files)).iter().map(|finding| finding.key.replace("c/src/", "")).collect()
    }

    #[test]
    fn two_that_use_each_other_are_a_circle() {
        let a = ("a.rs", "use crate::b::B;\npub struct A;");
        assert_eq!(pairs(&[("lib.rs", ""), a, ("b.rs", "pub struct B;")]), [""; 0]);
        for back in [
            "use super::a::A;",
            "use crate::{x, a::{self, A}};",
            "fn f(_: crate::a::A) {}",
            "use super::a::*;\nfn f(_: A) {}",
        ] {
            assert_eq!(pairs(&[("lib.rs", ""), a, ("b.rs", back)]), ["a + b"], "{back}");
        }
        for none in ["// use super::a::A;", "#[cfg(test)]\nmod tests { use crate::a::A; }", "use other::a::A;"] {
            assert_eq!(pairs(&[("lib.rs", ""), a, ("b.rs", none)]), [""; 0], "{none}");
        }
    }

    #[test]
    fn a_longer_loop_is_a_circle_and_is_told_with_its_names() {
        let texts = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::d::D;\nstruct B;"),
            ("d.rs", "use crate::a;\nstruct D;"),
        ];
        assert_eq!(pairs(&texts), ["a + b", "a + d", "b + d"]);
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(&format!("c/src/{path}"), text)).collect();
        let said = &circles(&source::product(&files))[0].complaint;
        assert_eq!(
            said,
            "a circle: c/src/a.rs\n    uses B of c/src/b.rs\n    uses D of c/src/d.rs\n    uses a of c/src/a.rs"
        );
    }

    #[test]
    fn a_module_and_its_children_may_use_each_other() {
        let parent = ("a.rs", "use b::B;\nuse self::d::D;\nstruct A;");
        assert_eq!(
            pairs(&[
                ("lib.rs", "use a::A;\nstruct L;"),
                parent,
                ("a/b.rs", "use super::A;\nuse crate::L;\nstruct B;"),
                ("a/d.rs", "struct D;")
            ]),
            [""; 0]
        );
    }

    #[test]
    fn what_a_parent_passes_on_is_used_of_the_child() {
        let parent = ("a.rs", "pub use b::B;\npub use d::D as E;");
        let children = |b, d| pairs(&[("lib.rs", ""), parent, ("a/b.rs", b), ("a/d.rs", d)]);
        assert_eq!(children("use super::E;\nstruct B;", "use super::B;\nstruct D;"), ["a/b + a/d"]);
        assert_eq!(children("use super::*;\nstruct B(E);", "use crate::a::B;\nstruct D;"), ["a/b + a/d"]);
        assert_eq!(children("use super::E;\nstruct B;", "struct D;"), [""; 0]);
    }

    #[test]
    fn a_child_takes_its_module_into_a_circle() {
        let texts = |b| {
            [
                ("lib.rs", ""),
                ("a.rs", "use crate::b::B;\nstruct A;"),
                ("b.rs", b),
                ("b/x.rs", "use crate::a::A;\nstruct X;"),
            ]
        };
        assert_eq!(pairs(&texts("use x::X;\nstruct B;")), ["a + b", "a + b/x"]);
        // Here the parent only passes the child's name on.
        assert_eq!(pairs(&texts("pub use x::X;\nstruct B;")), [""; 0]);
    }
}

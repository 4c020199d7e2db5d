//! Walls between doors: no file of a protocol uses another protocol, and what carries all of them uses none.

use super::modules::Modules;
use super::source::Source;

const FOLDER: &str = "services/doors/src/";
/// Modules that carry every protocol. Files beside the folders, such as the table of routes, put them together.
const CARRIERS: [&str; 3] = ["admin", "entry", "socket"];

/// Complaints about files that use a protocol which is not theirs. A protocol is a module with a file `parse.rs`.
pub fn doors_that_use_doors(sources: &[Source]) -> Vec<String> {
    let root = format!("{FOLDER}lib.rs");
    let is_door = |name: &str| sources.iter().any(|source| source.path == format!("{FOLDER}{name}/parse.rs"));
    let mut complaints = Vec::new();
    for ((from, to), names) in Modules::of(&root, sources).edges() {
        let (user, used) = (module(from), module(to));
        let is_walled = is_door(user) || CARRIERS.contains(&user);
        if is_walled && user != used && is_door(used) {
            let names: Vec<String> = names.into_iter().collect();
            complaints.push(format!("{from} uses {} of {to}: no door uses another", names.join(", ")));
        }
    }
    complaints
}

fn module(path: &str) -> &str {
    path.strip_prefix(FOLDER).and_then(|path| path.split(['/', '.']).next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::files::File;
    use crate::house::source;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File::new(&format!("{FOLDER}{path}"), text);
        let files = [
            file("lib.rs", "mod entry;\nmod chat;\nmod json;\nmod lamp;\nmod routes;\n"),
            file("json.rs", "pub fn tool() {}"),
            file("chat.rs", "mod parse;\npub use parse::Tool;"),
            file("chat/parse.rs", "pub struct Tool;"),
            file("lamp/parse.rs", "use crate::json::tool;\npub fn parse() { tool() }"),
            file(path, text),
        ];
        doors_that_use_doors(&source::product(&files))
    }

    #[test]
    fn a_door_that_uses_another_is_found() {
        let complaint =
            "services/doors/src/lamp.rs uses Tool of services/doors/src/chat/parse.rs: no door uses another";
        assert_eq!(found("lamp.rs", "mod parse;\nuse crate::chat::Tool;\nfn f(_: Tool) {}"), [complaint]);
        assert_eq!(found("lamp.rs", "mod parse;\nfn f(_: crate::chat::Tool) {}"), [complaint]);
        assert_eq!(found("entry.rs", "use crate::chat::Tool;\nfn f(_: Tool) {}").len(), 1);
    }

    #[test]
    fn a_door_may_use_its_own_files_and_the_table_all_doors() {
        assert_eq!(found("lamp.rs", "mod parse;\nfn f() { parse::parse() }"), [""; 0]);
        assert_eq!(found("routes.rs", "use crate::chat::Tool;\nfn f(_: Tool) {}"), [""; 0]);
        assert_eq!(found("lamp.rs", "mod parse;\n#[cfg(test)] mod tests { use crate::chat::Tool; }"), [""; 0]);
    }
}

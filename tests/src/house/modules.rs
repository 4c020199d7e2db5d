//! The modules of one crate, and which file uses what of which other: read from `use` and from paths such as
//! `super::store::Row`, well enough for code that rustfmt has formatted. A name that a module only passes on is found where
//! it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::source::{Source, braces, children};

/// Modules by path (`""` is the root, `a::b` another one). A file and the modules that it has inline are one.
pub struct Modules<'a> {
    files: BTreeMap<String, File<'a>>,
    /// The file's module of each inline module.
    inline: BTreeMap<String, String>,
}

struct File<'a> {
    path: &'a str,
    /// Code without `use` statements.
    body: String,
    uses: Vec<Use>,
    items: BTreeSet<String>,
}

/// One name of a `use` statement: `pub use a::B as C` has the path `[a, B]` and the name `C`.
#[derive(Clone, Debug, PartialEq)]
struct Use {
    /// The module it stands in, which may be inline.
    module: String,
    path: Vec<String>,
    name: String,
    passed_on: bool,
}

pub type Edges<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<String>>;

/// A circle of `use` that goes on for ever ends here.
const DEEPEST: usize = 16;

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").expect("a pattern"));
static INLINE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bmod (\w+) \{").expect("a pattern"));
static ITEM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:fn|struct|enum|trait|type|union|const|static|macro_rules!) (\w+)").expect("a pattern")
});
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:\b|\$)(\w+(?:::\w+)+)").expect("a pattern"));
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+").expect("a pattern"));

impl<'a> Modules<'a> {
    pub fn of(root: &str, sources: &'a [Source]) -> Modules<'a> {
        let folder = children(root);
        let mut modules = Modules { files: BTreeMap::new(), inline: BTreeMap::new() };
        for source in sources.iter().filter(|source| source.path.starts_with(&folder)) {
            let stem = source.path[folder.len()..].trim_end_matches(".rs");
            let module = match source.path == root {
                true => String::new(),
                false => stem.replace('/', "::"),
            };
            // `main.rs` beside `lib.rs` is a crate of its own, and so is what lies in `bin`.
            let another_crate = module == "main" || module == "lib" || module.starts_with("bin::");
            if source.path.ends_with(".rs") && !another_crate {
                modules.add(module, source);
            }
        }
        modules
    }

    fn add(&mut self, module: String, source: &'a Source) {
        let mut inline = Vec::new();
        for found in INLINE.captures_iter(&source.code) {
            let whole = found.get_match();
            inline.push((braces(&source.code, whole.end() - 1), found[1].to_string()));
        }
        let module_at = |at: usize| {
            let around = inline.iter().filter(|(range, _)| range.contains(&at)).map(|(_, name)| name.as_str());
            around.fold(module.clone(), |module, name| child(&module, name))
        };
        for (range, name) in &inline {
            self.inline.insert(child(&module_at(range.start - 1), name), module.clone());
        }
        let mut uses = Vec::new();
        for found in USE.captures_iter(&source.code) {
            let module = module_at(found.get_match().start());
            for (path, name) in leaves(&found[2]) {
                uses.push(Use { module: module.clone(), path, name, passed_on: found.get(1).is_some() });
            }
        }
        for found in
            PATH.captures_iter(&USE.replace_all(&source.code, |found: &regex::Captures| " ".repeat(found[0].len())))
        {
            let path: Vec<String> = found[1].split("::").map(str::to_string).collect();
            let name = path.last().cloned().unwrap_or_default();
            let module = module_at(found.get_match().start());
            uses.push(Use { module, path, name: format!("::{name}"), passed_on: false });
        }
        let body = USE.replace_all(&source.code, " ").into_owned();
        let items = ITEM.captures_iter(&body).map(|found| found[1].to_string()).collect();
        self.files.insert(module, File { path: source.path, body, uses, items });
    }

    pub fn edges(&self) -> Edges<'a> {
        let mut edges = Edges::new();
        for (module, file) in &self.files {
            let words: BTreeSet<&str> = WORD.find_iter(&file.body).map(|word| word.as_str()).collect();
            let mut add = |to: Option<String>, name: &str| {
                let to = to.map(|to| self.file_of(&to)).filter(|to| to != module);
                if let Some(to) = to.and_then(|to| self.files.get(&to)) {
                    edges.entry((file.path, to.path)).or_default().insert(name.trim_start_matches("::").to_string());
                }
            };
            for used in &file.uses {
                let target = self.resolve(&used.module, &used.path, DEEPEST);
                if used.name == "*" {
                    // What comes with a glob is used where its name stands.
                    let bound =
                        target.iter().flat_map(|target| self.bindings(target)).filter(|bound| bound.name != "*");
                    for bound in bound.filter(|bound| words.contains(bound.name.as_str())) {
                        add(self.resolve(&bound.module, &bound.path, DEEPEST), &bound.name);
                    }
                    let items = target.iter().filter_map(|target| self.files.get(&self.file_of(target)));
                    for item in items.flat_map(|file| &file.items).filter(|item| words.contains(item.as_str())) {
                        add(target.clone(), item);
                    }
                } else if !used.passed_on || words.contains(used.name.as_str()) {
                    add(target, &used.name);
                }
            }
        }
        edges
    }

    /// The module in which the path ends, or in which the item is defined at which it ends. None outside of the crate.
    fn resolve(&self, from: &str, path: &[String], deepest: usize) -> Option<String> {
        let deepest = deepest.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => String::new(),
            "self" => from.to_string(),
            "super" => parent(from)?,
            name => self.step(from, name, deepest).filter(|module| module != from)?,
        };
        while let Some((name, further)) = rest.split_first() {
            rest = further;
            module = match name.as_str() {
                "super" => parent(&module)?,
                "self" | "*" => module,
                name => self.step(&module, name, deepest)?,
            };
        }
        Some(module)
    }

    /// Returns the module that a name means in a module: that of the name, or the one that defines the item.
    fn step(&self, module: &str, name: &str, deepest: usize) -> Option<String> {
        let below = child(module, name);
        if self.files.contains_key(&below) || self.inline.contains_key(&below) {
            return Some(below);
        }
        if let Some(used) = self.bindings(module).find(|used| used.name == name) {
            return self.resolve(module, &used.path, deepest);
        }
        if self.files.get(module).is_some_and(|file| file.items.contains(name)) {
            return Some(module.to_string());
        }
        for glob in self.bindings(module).filter(|used| used.name == "*") {
            let target = self.resolve(module, &glob.path, deepest).filter(|target| target != module);
            let found = target.and_then(|target| self.step(&target, name, deepest).map(|found| (target, found)));
            if let Some((target, found)) = found
                && (found != target || self.files.get(&target).is_some_and(|file| file.items.contains(name)))
            {
                return Some(found);
            }
        }
        Some(module.to_string())
    }

    /// The names that `use` brings into a module.
    fn bindings(&self, module: &str) -> impl Iterator<Item = &Use> {
        let file = self.files.get(&self.file_of(module));
        let uses = file.into_iter().flat_map(|file| &file.uses);
        uses.filter(move |used| used.module == module && !used.name.starts_with("::"))
    }

    fn file_of(&self, module: &str) -> String {
        self.inline.get(module).cloned().unwrap_or_else(|| module.to_string())
    }
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_string() } else { format!("{module}::{name}") }
}

fn parent(module: &str) -> Option<String> {
    match module.rsplit_once("::") {
        Some((parent, _)) => Some(parent.to_string()),
        None => (!module.is_empty()).then(String::new),
    }
}

/// The names of a tree such as `a::{b, c::{self, D as E}, f::*}`, with their paths.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_string()).collect();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.trim().to_string() };
        return vec![(path, name)];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut branches, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match branches.last_mut() {
            Some(branch) if c != ',' || depth > 0 => branch.push(c),
            _ => branches.push(String::new()),
        }
    }
    let branches = branches.iter().filter(|branch| !branch.trim().is_empty());
    branches.flat_map(|branch| leaves(&format!("{}{}", head.trim(), branch.trim()))).collect()
}

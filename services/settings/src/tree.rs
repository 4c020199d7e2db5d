//! A layer as a tree of values that remember where they were written, and laying one over another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use toml::de::{DeTable, DeValue};

use crate::{Error, Origin};

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Table(Table),
    Leaf(Leaf),
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub entries: BTreeMap<String, Node>,
    pub origin: Origin,
    /// The path as written, for messages.
    pub key: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub value: Value,
    pub origin: Origin,
    /// The path as written: a preset's value may have been written under `preset` or under another preset's name.
    pub key: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// From the environment or a flag: text that becomes whatever the key wants.
    Raw(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Value>),
    /// Names, each with its value where it has one.
    Pairs(Vec<(String, Option<Value>)>),
    /// What no key takes (dates, tables in lists), in words.
    Other(String),
}

/// One TOML text. `origin` makes the origin of a line.
pub(crate) fn parse(text: &str, file: &str, origin: impl Fn(usize) -> Origin) -> Result<Table, Error> {
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let root = DeTable::parse(text).map_err(|error| Error::Syntax {
        file: file.to_string(),
        line: line(error.span().map_or(0, |span| span.start)),
        message: error.message().replace('\n', ", "),
    })?;
    Ok(table(root.get_ref(), "", origin(1), &|at| origin(line(at))))
}

/// One value as a file would have it. None: it is none.
pub(crate) fn value(text: &str) -> Option<Value> {
    let line = format!("value = {text}");
    let root = DeTable::parse(&line).ok()?;
    let root = root.get_ref();
    root.get("value").filter(|_| root.len() == 1).map(|value| plain(value.get_ref()))
}

/// Lays `over` on `base`: tables merge, everything else is replaced.
pub(crate) fn overlay(base: &mut Table, over: Table) {
    for (name, node) in over.entries {
        match (base.entries.entry(name), node) {
            (Entry::Occupied(mut below), Node::Table(above)) if matches!(below.get(), Node::Table(_)) => {
                if let Node::Table(below) = below.get_mut() {
                    overlay(below, above);
                }
            }
            (Entry::Occupied(mut below), above) => {
                below.insert(above);
            }
            (Entry::Vacant(place), above) => {
                place.insert(above);
            }
        }
    }
}

/// Puts one value of the environment or a flag at `path`.
pub(crate) fn put(root: &mut Table, path: &[&str], text: &str, origin: Origin) {
    let [name, rest @ ..] = path else { return };
    let key = join(&root.key, name);
    if rest.is_empty() {
        let value = Value::Raw(text.to_string());
        root.entries.insert(name.to_string(), Node::Leaf(Leaf { value, origin, key }));
        return;
    }
    let below = root.entries.entry(name.to_string()).or_insert_with(|| Node::Table(empty(&key, origin.clone())));
    if let Node::Leaf(_) = below {
        *below = Node::Table(empty(&key, origin.clone()));
    }
    if let Node::Table(below) = below {
        put(below, rest, text, origin);
    }
}

pub(crate) fn empty(key: &str, origin: Origin) -> Table {
    Table { entries: BTreeMap::new(), origin, key: key.to_string() }
}

/// `presets` and `qwen3.5-9b` as `presets."qwen3.5-9b"`, as TOML wants it.
pub(crate) fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if bare { name.to_string() } else { quoted(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

impl Value {
    /// The value in words, for "found ...".
    pub(crate) fn in_words(&self) -> String {
        match self {
            Value::Raw(text) | Value::Text(text) => format!("the text {}", quoted(&shortened(text))),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number:?}"),
            Value::Bool(value) => value.to_string(),
            Value::List(_) => "a list".to_string(),
            Value::Pairs(_) => format!("the names {}", shortened(&self.to_toml())),
            Value::Other(words) => words.clone(),
        }
    }

    /// The value as TOML.
    pub(crate) fn to_toml(&self) -> String {
        match self {
            Value::Raw(text) | Value::Text(text) | Value::Other(text) => quoted(text),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Bool(value) => value.to_string(),
            Value::List(values) => {
                format!("[{}]", values.iter().map(Value::to_toml).collect::<Vec<_>>().join(", "))
            }
            Value::Pairs(pairs) if pairs.is_empty() => "{}".to_string(),
            Value::Pairs(pairs) => {
                let value = |value: &Option<Value>| value.as_ref().map_or("1".to_string(), Value::to_toml);
                let pairs = pairs.iter().map(|(name, given)| format!("{} = {}", join("", name), value(given)));
                format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn table(from: &DeTable<'_>, key: &str, origin: Origin, at: &dyn Fn(usize) -> Origin) -> Table {
    let mut to = empty(key, origin);
    for (name, value) in from.iter() {
        let (origin, key) = (at(name.span().start), join(key, name.get_ref()));
        let node = match value.get_ref() {
            DeValue::Table(below) => Node::Table(table(below, &key, origin, at)),
            other => Node::Leaf(Leaf { value: plain(other), origin, key }),
        };
        to.entries.insert(name.get_ref().to_string(), node);
    }
    to
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Other(format!("the number {}", number.as_str())),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other(format!("the number {}", number.as_str())),
        },
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Array(values) => Value::List(values.iter().map(|value| plain(value.get_ref())).collect()),
        DeValue::Datetime(date) => Value::Other(format!("the date {date}")),
        DeValue::Table(_) => Value::Other("a table".to_string()),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(text: &str) -> Result<Table, Error> {
        parse(text, "f.toml", |line| Origin::UserFile { file: "f.toml".to_string(), line })
    }

    #[test]
    fn lines_and_keys_are_remembered() {
        let root = user("[a]\nb = 1\n\n[a.\"x.y\"]\nc.d = true\n").unwrap();
        let Some(Node::Table(a)) = root.entries.get("a") else { panic!("no table a") };
        let Some(Node::Leaf(b)) = a.entries.get("b") else { panic!("no leaf b") };
        assert_eq!((b.key.as_str(), b.origin.to_string().as_str()), ("a.b", "f.toml:2"));
        let Some(Node::Table(x)) = a.entries.get("x.y") else { panic!("no table x.y") };
        let Some(Node::Table(c)) = x.entries.get("c") else { panic!("no table c") };
        let Some(Node::Leaf(d)) = c.entries.get("d") else { panic!("no leaf d") };
        assert_eq!((d.key.as_str(), d.origin.to_string().as_str()), ("a.\"x.y\".c.d", "f.toml:5"));
    }

    #[test]
    fn a_later_layer_wins_and_leaves_the_rest() {
        let mut base = user("[a]\nb = 1\nc = 2\n").unwrap();
        overlay(&mut base, user("[a]\nc = 3\n").unwrap());
        put(&mut base, &["a", "d"], "4", Origin::Flag { flag: "--d".to_string() });
        let Some(Node::Table(a)) = base.entries.get("a") else { panic!("no table a") };
        let values: Vec<_> = a
            .entries
            .values()
            .map(|node| match node {
                Node::Leaf(leaf) => leaf.value.clone(),
                Node::Table(_) => panic!("a table"),
            })
            .collect();
        assert_eq!(values, [Value::Integer(1), Value::Integer(3), Value::Raw("4".to_string())]);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC{0,40}|([a-c.\"\\[\\]=\n {}'0-9_x]{0,60})") {
            let _ = user(&text);
        }
    }
}

//! From the merged tree to typed values. Each read names its key and what is allowed there; mistakes are collected, and
//! a key that nobody asked for is one of them. So the struct that is filled is also the list of what may be written.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::Mistake;
use crate::load::Effective;
use crate::nearest::nearest;
use crate::tree::{self, Leaf, Node, Table, Value, join};
use crate::units::{self, Time};

/// A closed set of words.
pub(crate) trait Choice: Copy + 'static {
    const ALL: &'static [(&'static str, Self)];
}

/// A number of tokens, or a share of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tokens {
    Count(u32),
    Share(f64),
}

/// What reading leaves behind: every value with its origin, and every mistake.
#[derive(Default)]
pub(crate) struct Findings {
    pub effective: RefCell<Vec<Effective>>,
    mistakes: RefCell<Vec<Mistake>>,
}

/// One table being read.
pub(crate) struct Reader<'a> {
    /// None where something else stands in the table's place, which was already reported.
    table: Option<&'a Table>,
    path: String,
    findings: &'a Findings,
    asked: RefCell<Vec<&'static str>>,
}

const UNKNOWN: &str = "an unknown key";

impl Findings {
    /// Reads a whole table: `path` is its name in `effective`.
    pub fn read<T>(&self, table: &Table, path: &str, fill: impl FnOnce(&Reader<'_>) -> T) -> T {
        let reader =
            Reader { table: Some(table), path: path.to_string(), findings: self, asked: RefCell::new(Vec::new()) };
        let value = fill(&reader);
        reader.report_unknown();
        value
    }

    /// Values that contradict each other, as (section, key). The mistake is told at the one of the latest layer, because
    /// the defaults agree with each other, and at the first of them where several are.
    pub fn contradiction(&self, keys: &[(&str, &str)], found: String, allowed: &str) {
        let effective = self.effective.borrow();
        let written = keys
            .iter()
            .rev()
            .filter_map(|(section, key)| effective.iter().find(|value| value.section == *section && value.key == *key));
        if let Some(at) = written.max_by_key(|value| value.origin.rank()) {
            let (origin, key, allowed) = (at.origin.clone(), at.written.clone(), allowed.to_string());
            self.add(Mistake { origin, key, found, allowed, hint: None });
        }
    }

    /// A line of `[preset]` is read once for each preset, but is one mistake.
    pub fn add(&self, mistake: Mistake) {
        let mut mistakes = self.mistakes.borrow_mut();
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }

    pub fn mistake_count(&self) -> usize {
        self.mistakes.borrow().len()
    }

    /// All mistakes. A key that is unknown where it stands may be right in another section.
    pub fn mistakes(self) -> Vec<Mistake> {
        let effective = self.effective.into_inner();
        let mut mistakes = self.mistakes.into_inner();
        for mistake in mistakes.iter_mut().filter(|mistake| mistake.found == UNKNOWN && mistake.hint.is_none()) {
            let last = mistake.key.rsplit('.').next().unwrap_or_default();
            let elsewhere = effective.iter().find(|value| value.key == last && !value.section.starts_with("presets."));
            mistake.hint = elsewhere.map(|value| format!("did you mean `{last}` in [{}]", value.section));
        }
        mistakes
    }
}

impl<'a> Reader<'a> {
    pub fn section<T>(&self, name: &'static str, fill: impl FnOnce(&Reader<'_>) -> T) -> T {
        self.asked.borrow_mut().push(name);
        let path = join(&self.path, name);
        let table = match self.table.and_then(|table| table.entries.get(name)) {
            Some(Node::Table(table)) => Some(table),
            Some(Node::Leaf(leaf)) => {
                self.wrong(leaf, &leaf.value, format!("a table [{path}]"), None);
                None
            }
            None => None,
        };
        let reader = Reader { table, path, findings: self.findings, asked: RefCell::new(Vec::new()) };
        let value = fill(&reader);
        reader.report_unknown();
        value
    }

    pub fn text(&self, key: &'static str) -> String {
        self.read(key, Value::as_text, String::new(), "text in quotes", |value| match value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(None),
        })
    }

    pub fn bool(&self, key: &'static str) -> bool {
        self.read(key, Value::as_bool, false, "true or false", |value| match value {
            Value::Bool(value) => Ok(*value),
            _ => Err(None),
        })
    }

    pub fn list(&self, key: &'static str) -> Vec<String> {
        self.read(key, Value::as_list, Vec::new(), "a list of texts such as [\"one\", \"two\"]", |value| match value {
            Value::List(values) => values
                .iter()
                .map(|value| match value {
                    Value::Text(text) => Ok(text.clone()),
                    _ => Err(None),
                })
                .collect(),
            _ => Err(None),
        })
    }

    pub fn choice<T: Choice>(&self, key: &'static str) -> T {
        let words = || T::ALL.iter().map(|(word, _)| *word);
        let allowed = words().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        self.read(key, Value::as_text, T::ALL[0].1, &allowed, |value| {
            let Value::Text(text) = value else { return Err(None) };
            let found = T::ALL.iter().find(|(word, _)| word == text);
            found.map(|(_, value)| *value).ok_or_else(|| nearest(text, words()).map(|word| mean(&format!("{word:?}"))))
        })
    }

    /// A whole number in a range; `u64::MAX` as the end means that there is none.
    pub fn whole<T: TryFrom<u64> + Default>(&self, key: &'static str, range: RangeInclusive<u64>) -> T {
        let allowed = format!("a whole number {}", span(*range.start(), *range.end(), u64::MAX));
        self.read(key, Value::as_number, T::default(), &allowed, |value| match value {
            Value::Integer(number) => in_range(u64::try_from(*number).ok(), &range),
            _ => Err(None),
        })
    }

    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> f64 {
        let allowed = format!("a number {}", span(*range.start(), *range.end(), f64::INFINITY));
        self.read(key, Value::as_number, *range.start(), &allowed, |value| {
            let number = match value {
                Value::Integer(number) => *number as f64,
                Value::Float(number) => *number,
                _ => return Err(None),
            };
            if range.contains(&number) { Ok(number) } else { Err(None) }
        })
    }

    pub fn bytes<T: TryFrom<u64> + Default>(&self, key: &'static str, range: RangeInclusive<u64>) -> T {
        let allowed = format!("{} {}", SIZE, span(*range.start(), *range.end(), u64::MAX));
        self.read(key, Value::as_number, T::default(), &allowed, |value| in_range(Some(size(value)?), &range))
    }

    pub fn bytes_or_auto(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let allowed = format!("\"auto\", or {} {}", SIZE, span(*range.start(), *range.end(), u64::MAX));
        self.read(key, Value::as_number, None, &allowed, |value| match value {
            Value::Text(text) if text == "auto" => Ok(None),
            value => in_range(Some(size(value)?), &range).map(Some),
        })
    }

    pub fn whole_or_auto(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<usize> {
        let allowed = format!("\"auto\", or a whole number {}", span(*range.start(), *range.end(), u64::MAX));
        self.read(key, Value::as_number, None, &allowed, |value| match value {
            Value::Text(text) if text == "auto" => Ok(None),
            Value::Integer(number) => in_range(u64::try_from(*number).ok(), &range).map(Some),
            _ => Err(None),
        })
    }

    pub fn time<T: TryFrom<u64> + Default>(&self, key: &'static str, unit: Time, range: RangeInclusive<u64>) -> T {
        let range_in_words = span(*range.start(), *range.end(), u64::MAX);
        let allowed =
            format!("{} {range_in_words}, or a time with a unit such as \"10s\" (ms, s, min, h, d)", unit.name());
        self.read(key, Value::as_number, T::default(), &allowed, |value| match value {
            Value::Integer(number) => in_range(u64::try_from(*number).ok(), &range),
            Value::Text(text) => in_range(units::time(text, unit), &range),
            _ => Err(None),
        })
    }

    pub fn tokens(&self, key: &'static str) -> Tokens {
        let allowed = "a number of tokens of at least 1, or a share of ctx_size such as \"20%\"";
        self.read(key, Value::as_number, Tokens::Count(1), allowed, |value| match value {
            Value::Integer(number) => in_range(u64::try_from(*number).ok(), &(1..=u64::MAX)).map(Tokens::Count),
            Value::Text(text) => units::share(text).map(Tokens::Share).ok_or(None),
            _ => Err(None),
        })
    }

    /// A point in time, as milliseconds since 1970; an empty text is none.
    pub fn moment(&self, key: &'static str) -> Option<i64> {
        let allowed = "\"\", or a date such as 2026-12-01 or 2026-12-01T08:30:00+01:00 (without an offset it is UTC)";
        let typed = |value: &Value| match value {
            Value::Other(words) => Value::Text(words.trim_start_matches("the date ").to_string()),
            other => other.as_text(),
        };
        self.read(key, typed, None, allowed, |value| match value {
            Value::Text(text) if text.is_empty() => Ok(None),
            Value::Text(text) => units::moment(text).map(Some).ok_or(None),
            _ => Err(None),
        })
    }

    /// A table whose names are the user's. From the environment and flags it is `name=value, name`; without a value
    /// `parse` gets none.
    pub fn map<T>(
        &self,
        key: &'static str,
        allowed: &str,
        parse: impl Fn(Option<&Value>) -> Result<T, Option<String>>,
    ) -> Vec<(String, T)> {
        let node = self.table.and_then(|table| table.entries.get(key));
        let Some(Node::Table(table)) = node else {
            return self.read(key, Value::as_pairs, Vec::new(), allowed, |value| match value {
                Value::Pairs(pairs) => {
                    pairs.iter().map(|(name, value)| Ok((name.clone(), parse(value.as_ref())?))).collect()
                }
                _ => Err(None),
            });
        };
        self.asked.borrow_mut().push(key);
        let (mut map, mut pairs, mut newest) = (Vec::new(), Vec::new(), &table.origin);
        for (name, node) in &table.entries {
            let leaf = match node {
                Node::Leaf(leaf) => leaf,
                Node::Table(below) => {
                    let (origin, key, found) = (below.origin.clone(), below.key.clone(), "a table".to_string());
                    let hint = Some("did you mean a name with a dot, which stands in quotes".to_string());
                    self.findings.add(Mistake { origin, key, found, allowed: allowed.to_string(), hint });
                    continue;
                }
            };
            let value = leaf.value.as_number();
            match parse(Some(&value)) {
                Ok(parsed) => {
                    map.push((name.clone(), parsed));
                    pairs.push((name.clone(), Some(value)));
                }
                Err(hint) => self.wrong(leaf, &leaf.value, allowed.to_string(), hint),
            }
            if leaf.origin.rank() >= newest.rank() {
                newest = &leaf.origin;
            }
        }
        let leaf = Leaf { value: Value::Pairs(pairs), origin: newest.clone(), key: join(&self.path, key) };
        self.keep(key, &leaf.value, &leaf);
        map
    }

    /// Text of a certain kind.
    pub fn text_as<T>(
        &self,
        key: &'static str,
        fallback: T,
        allowed: &str,
        parse: impl FnOnce(&str) -> Result<T, Option<String>>,
    ) -> T {
        self.read(key, Value::as_text, fallback, allowed, |value| match value {
            Value::Text(text) => parse(text),
            _ => Err(None),
        })
    }

    /// Names that are read elsewhere, and so are not unknown.
    pub fn known(&self, names: &[&'static str]) {
        self.asked.borrow_mut().extend(names);
    }

    /// Anything else: `parse` gets numbers as numbers and the rest as text.
    pub fn number_or_text<T>(
        &self,
        key: &'static str,
        fallback: T,
        allowed: &str,
        parse: impl FnOnce(&Value) -> Result<T, Option<String>>,
    ) -> T {
        self.read(key, Value::as_number, fallback, allowed, parse)
    }

    fn read<T>(
        &self,
        key: &'static str,
        typed: impl FnOnce(&Value) -> Value,
        fallback: T,
        allowed: &str,
        parse: impl FnOnce(&Value) -> Result<T, Option<String>>,
    ) -> T {
        self.asked.borrow_mut().push(key);
        let Some(table) = self.table else { return fallback };
        match table.entries.get(key) {
            Some(Node::Leaf(leaf)) => {
                let value = typed(&leaf.value);
                match parse(&value) {
                    Ok(parsed) => {
                        self.keep(key, &value, leaf);
                        parsed
                    }
                    Err(hint) => {
                        self.wrong(leaf, &value, allowed.to_string(), hint);
                        fallback
                    }
                }
            }
            Some(Node::Table(below)) => {
                let (origin, key) = (below.origin.clone(), below.key.clone());
                let (found, allowed) = ("a table".to_string(), allowed.to_string());
                self.findings.add(Mistake { origin, key, found, allowed, hint: None });
                fallback
            }
            None => {
                let (origin, key) = (table.origin.clone(), join(&self.path, key));
                let (found, allowed) = ("nothing".to_string(), allowed.to_string());
                self.findings.add(Mistake { origin, key, found, allowed, hint: None });
                fallback
            }
        }
    }

    fn keep(&self, key: &str, value: &Value, leaf: &Leaf) {
        self.findings.effective.borrow_mut().push(Effective {
            section: self.path.clone(),
            key: key.to_string(),
            value: value.to_toml(),
            written: leaf.key.clone(),
            origin: leaf.origin.clone(),
        });
    }

    fn wrong(&self, leaf: &Leaf, value: &Value, allowed: String, hint: Option<String>) {
        let (origin, key, found) = (leaf.origin.clone(), leaf.key.clone(), value.in_words());
        self.findings.add(Mistake { origin, key, found, allowed, hint });
    }

    fn report_unknown(&self) {
        let Some(table) = self.table else { return };
        let asked = self.asked.borrow();
        for (name, node) in table.entries.iter().filter(|(name, _)| !asked.contains(&name.as_str())) {
            let (origin, key) = match node {
                Node::Leaf(leaf) => (leaf.origin.clone(), leaf.key.clone()),
                Node::Table(table) => (table.origin.clone(), table.key.clone()),
            };
            let hint = nearest(name, asked.iter().copied()).map(|near| mean(&format!("`{near}`")));
            self.findings.add(Mistake { origin, key, found: UNKNOWN.to_string(), allowed: asked.join(", "), hint });
        }
    }
}

const SIZE: &str = "bytes, as a number or with a unit such as \"8GiB\" (KiB, MiB, GiB, TiB),";

fn size(value: &Value) -> Result<u64, Option<String>> {
    match value {
        Value::Integer(number) => u64::try_from(*number).map_err(|_| None),
        Value::Text(text) => units::bytes(text),
        _ => Err(None),
    }
}

fn in_range<T: TryFrom<u64>>(number: Option<u64>, range: &RangeInclusive<u64>) -> Result<T, Option<String>> {
    let number = number.filter(|number| range.contains(number)).ok_or(None)?;
    T::try_from(number).map_err(|_| None)
}

fn span<T: Display + PartialEq>(start: T, end: T, none: T) -> String {
    if end == none { format!("of at least {start}") } else { format!("from {start} to {end}") }
}

fn mean(word: &str) -> String {
    format!("did you mean {word}")
}

/// Text of the environment becomes the type that the key wants; what cannot stays text and is then wrong as text.
impl Value {
    fn as_text(&self) -> Value {
        match self {
            Value::Raw(text) => Value::Text(text.clone()),
            other => other.clone(),
        }
    }

    fn as_bool(&self) -> Value {
        match self {
            Value::Raw(text) => text.parse().map_or(Value::Text(text.clone()), Value::Bool),
            other => other.clone(),
        }
    }

    fn as_number(&self) -> Value {
        let Value::Raw(text) = self else { return self.clone() };
        let plain = text.replace('_', "");
        match (plain.parse::<i64>(), plain.parse::<f64>()) {
            (Ok(number), _) => Value::Integer(number),
            (_, Ok(number)) if number.is_finite() => Value::Float(number),
            _ => Value::Text(text.clone()),
        }
    }

    /// `a=1, b` is two names of which one has a value.
    fn as_pairs(&self) -> Value {
        let pair = |text: &str| match text.split_once('=') {
            Some((name, value)) => (name.trim().to_string(), Some(Value::Raw(value.trim().to_string()).as_number())),
            None => (text.to_string(), None),
        };
        match self.as_list() {
            Value::List(items) => {
                let texts: Option<Vec<_>> = items
                    .iter()
                    .map(|item| match item {
                        Value::Text(text) => Some(pair(text)),
                        _ => None,
                    })
                    .collect();
                texts.map_or(Value::List(items), Value::Pairs)
            }
            other => other,
        }
    }

    /// `a, b` is a list of two, as is `["a", "b"]`; nothing is an empty one.
    fn as_list(&self) -> Value {
        let Value::Raw(text) = self else { return self.clone() };
        if text.trim_start().starts_with('[') {
            return tree::value(text).unwrap_or_else(|| Value::Text(text.clone()));
        }
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Value::List(items.map(|item| Value::Text(item.to_string())).collect())
    }
}

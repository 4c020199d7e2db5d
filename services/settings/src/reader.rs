//! Typed values from merged tables. Each read names its key and the allowed values. The reader collects all mistakes,
//! and a key that no read asked for is one of them. So the code that fills a struct is also the list of the allowed
//! keys.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use config::ValueKind;
use strum::VariantArray;

use crate::error::Mistake;
use crate::findings::{Effective, Findings, UNKNOWN};
use crate::layers::{Table, entries, origin, table_origin, written_as_in_a_file};
use crate::nearest::{hint, nearest};
use crate::origin::{Origin, join};
use crate::units::{self, TimeUnit};
use crate::value::Value;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenCount {
    Count(u32),
    Share(f64),
}

/// Structs whose fields are read by name: `retries: u32 = whole(0..=1000)` is the key `retries`, read by
/// [`SectionReader::whole`].
macro_rules! sections {
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $read:ident($($argument:expr)?),)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            pub(crate) fn read(reader: &$crate::reader::SectionReader<'_>) -> $name {
                $name { $($field: reader.$read(stringify!($field) $(, $argument)?),)* }
            }
        }
    )*};
}
pub(crate) use sections;

/// Parsed value; the error is a hint at an allowed word nearby, if there is one.
pub(crate) type Parsed<T> = Result<T, Option<String>>;

pub(crate) const ANY: u64 = u64::MAX;

pub(crate) struct SectionReader<'a> {
    table: Option<&'a Table>,
    path: String,
    findings: &'a Findings,
    asked: RefCell<Vec<&'static str>>,
    /// True for an entry of a list: it may leave keys out, and the list is the effective value.
    is_entry: bool,
}

pub(crate) fn read<T>(
    table: Option<&Table>,
    path: &str,
    findings: &Findings,
    fill: impl FnOnce(&SectionReader<'_>) -> T,
) -> T {
    let (path, asked) = (path.to_string(), RefCell::default());
    let reader = SectionReader { table, path, findings, asked, is_entry: false };
    let value = fill(&reader);
    reader.report_unknown();
    value
}

impl SectionReader<'_> {
    pub fn section<T>(&self, name: &'static str, fill: impl FnOnce(&SectionReader<'_>) -> T) -> T {
        self.asked.borrow_mut().push(name);
        let path = join(&self.path, name);
        let table = self.table.and_then(|table| table.get(name)).and_then(|value| match &value.kind {
            ValueKind::Table(table) => Some(table),
            _ => {
                self.wrong(origin(value), &Value::of(value), &format!("a table [{path}]"), None);
                None
            }
        });
        read(table, &path, self.findings, fill)
    }

    pub fn filled_later<T: Default>(&self, key: &'static str) -> T {
        self.asked.borrow_mut().push(key);
        T::default()
    }

    pub fn text(&self, key: &'static str) -> String {
        self.text_as(key, String::new(), "text in quotes", |text| Ok(text.to_string()))
    }

    pub fn optional_text(&self, key: &'static str) -> Option<String> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    pub fn optional_path(&self, key: &'static str) -> Option<PathBuf> {
        self.optional_text(key).map(PathBuf::from)
    }

    pub fn path(&self, key: &'static str) -> PathBuf {
        self.text_as(key, PathBuf::new(), "a path", |text| if text.is_empty() { Err(None) } else { Ok(text.into()) })
    }

    pub fn bool(&self, key: &'static str) -> bool {
        self.read(key, Value::as_bool, false, "true or false", |value| match value {
            Value::Bool(value) => Ok(*value),
            _ => Err(None),
        })
    }

    pub fn list(&self, key: &'static str) -> Vec<String> {
        self.list_of(key, "a list of texts such as [\"one\", \"two\"]", |text| Ok(text.to_string()))
    }

    pub fn list_of<T>(&self, key: &'static str, allowed: &str, parse: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        let entry = |value: &Value| if let Value::Text(text) = value { parse(text) } else { Err(None) };
        self.read(key, Value::as_list, Vec::new(), allowed, |value| match value {
            Value::List(values) => values.iter().map(entry).collect(),
            _ => Err(None),
        })
    }

    pub fn choice<T: VariantArray + Copy + Into<&'static str>>(&self, key: &'static str) -> T {
        let words = || T::VARIANTS.iter().map(|variant| -> &'static str { (*variant).into() });
        let allowed = words().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        self.text_as(key, T::VARIANTS[0], &allowed, |text| {
            let found = T::VARIANTS.iter().zip(words()).find(|(_, word)| *word == text);
            found.map(|(variant, _)| *variant).ok_or_else(|| hint(text, words()))
        })
    }

    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> f64 {
        let allowed = format!("a number {}", span(*range.start(), *range.end(), f64::INFINITY));
        self.read(key, Value::as_number, *range.start(), &allowed, |value| match value {
            Value::Integer(number) if range.contains(&(*number as f64)) => Ok(*number as f64),
            Value::Float(number) if range.contains(number) => Ok(*number),
            _ => Err(None),
        })
    }

    pub fn number_f32(&self, key: &'static str, range: RangeInclusive<f64>) -> f32 {
        self.number(key, range) as f32
    }

    pub fn whole<T: TryFrom<u64> + Default>(&self, key: &'static str, range: RangeInclusive<u64>) -> T {
        self.amount(key, "a whole number", whole, range, "")
    }

    pub fn bytes<T: TryFrom<u64> + Default>(&self, key: &'static str, range: RangeInclusive<u64>) -> T {
        self.amount(key, SIZE, size, range, "")
    }

    pub fn time<T: TryFrom<u64> + Default>(&self, key: &'static str, range: RangeInclusive<u64>) -> T {
        let unit = TimeUnit::of_key(key);
        let read = |value: &Value| match value {
            Value::Text(text) => units::time(text, unit).ok_or(None),
            value => whole(value),
        };
        self.amount(key, unit.name, read, range, ", or a time with a unit such as \"10s\" (ms, s, min, h, d)")
    }

    pub fn whole_or_auto<T: TryFrom<u64>>(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<T> {
        self.amount_or_auto(key, "a whole number", whole, range)
    }

    pub fn bytes_or_auto<T: TryFrom<u64>>(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<T> {
        self.amount_or_auto(key, SIZE, size, range)
    }

    pub fn tokens(&self, key: &'static str) -> TokenCount {
        let allowed = "a number of tokens of at least 1, or a share of ctx_size such as \"20%\"";
        self.read(key, Value::as_number, TokenCount::Count(1), allowed, |value| match value {
            Value::Text(text) => units::share(text).map(TokenCount::Share).ok_or(None),
            value => in_range(whole(value)?, &(1..=ANY)).map(TokenCount::Count),
        })
    }

    pub fn moment(&self, key: &'static str) -> Option<i64> {
        let allowed = "\"\", or a date such as 2026-12-01 or 2026-12-01T08:30:00+01:00 (without an offset it is UTC)";
        self.read(key, Value::as_moment, None, allowed, |value| match value {
            Value::Text(text) if text.is_empty() => Ok(None),
            Value::Text(text) => units::moment(text).map(Some).ok_or(None),
            _ => Err(None),
        })
    }

    /// Reads a table with names that the user chooses. In the environment and in flags it is `name=value, name`; for a
    /// name without a value `parse` gets `None`.
    pub fn map<T>(
        &self,
        key: &'static str,
        allowed: &str,
        parse: impl Fn(Option<&Value>) -> Parsed<T>,
    ) -> Vec<(String, T)> {
        let Some(found) = self.get(key, allowed) else { return Vec::new() };
        let mut newest = origin(found);
        let pairs: Vec<(String, Option<Value>, Origin)> = match &found.kind {
            ValueKind::Table(table) => {
                let pair = |(name, value): (&str, &config::Value)| {
                    (name.to_string(), Some(Value::of(value).as_number()), origin(value))
                };
                entries(table).into_iter().map(pair).collect()
            }
            _ => match Value::of(found).as_pairs() {
                Ok(pairs) => {
                    let at = |name: &str| Origin { key: join(&newest.key, name), ..newest.clone() };
                    pairs.into_iter().map(|(name, value)| (name.clone(), value, at(&name))).collect()
                }
                Err(value) => {
                    self.wrong(newest, &value, allowed, None);
                    return Vec::new();
                }
            },
        };
        let (mut map, mut toml) = (Vec::new(), Vec::new());
        for (name, value, origin) in pairs {
            match parse(value.as_ref()) {
                Ok(parsed) => {
                    let value = value.map_or("1".to_string(), |value| value.to_toml());
                    toml.push(format!("{} = {value}", join("", &name)));
                    map.push((name, parsed));
                }
                Err(hint) => {
                    let value = value.unwrap_or(Value::Other("no value".to_string()));
                    let dot = || "did you mean a name with a dot, which stands in quotes".to_string();
                    let hint = hint.or_else(|| (value == Value::table()).then(dot));
                    self.wrong(origin.clone(), &value, allowed, hint);
                }
            }
            if origin.layer >= newest.layer {
                newest = origin;
            }
        }
        newest.key = join(&self.path, key);
        let toml = if toml.is_empty() { "{}".to_string() } else { format!("{{ {} }}", toml.join(", ")) };
        self.keep(key, toml, newest);
        map
    }

    pub fn tables<T>(&self, key: &'static str, allowed: &str, fill: impl Fn(&SectionReader<'_>) -> T) -> Vec<T> {
        let Some(found) = self.get(key, allowed) else { return Vec::new() };
        let (value, found_at) = (Value::of(found), origin(found));
        let written;
        let entries = match (&found.kind, &value) {
            (ValueKind::Array(entries), _) => entries.as_slice(),
            (_, Value::Raw(text)) => {
                written = written_as_in_a_file(text, &found_at).unwrap_or_default();
                match &written.kind {
                    ValueKind::Array(entries) => entries.as_slice(),
                    _ => std::slice::from_ref(found),
                }
            }
            _ => std::slice::from_ref(found),
        };
        let mut filled = Vec::new();
        for entry in entries {
            let ValueKind::Table(table) = &entry.kind else {
                self.wrong(found_at.clone(), &value, allowed, None);
                return Vec::new();
            };
            let path = table_origin(table).key;
            let (table, asked) = (Some(table), RefCell::default());
            let reader = SectionReader { table, path, findings: self.findings, asked, is_entry: true };
            filled.push(fill(&reader));
            reader.report_unknown();
        }
        let toml = format!("[{}]", entries.iter().map(to_toml).collect::<Vec<_>>().join(", "));
        self.keep(key, toml, found_at);
        filled
    }

    pub fn is_table(&self, key: &'static str) -> bool {
        let found = self.table.and_then(|table| table.get(key));
        found.is_some_and(|value| matches!(value.kind, ValueKind::Table(_)))
    }

    pub fn has(&self, key: &'static str) -> bool {
        self.asked.borrow_mut().push(key);
        self.table.is_some_and(|table| table.contains_key(key))
    }

    pub fn mistake(&self, key: &str, found: String, allowed: &str) {
        let Some(table) = self.table else { return };
        let missing = || Origin { key: join(&self.path, key), ..table_origin(table) };
        let origin = table.get(key).map_or_else(missing, origin);
        self.findings.add(Mistake { origin, found, allowed: allowed.to_string(), hint: None });
    }

    pub fn text_as<T>(
        &self,
        key: &'static str,
        fallback: T,
        allowed: &str,
        parse: impl FnOnce(&str) -> Parsed<T>,
    ) -> T {
        self.read(key, Value::as_text, fallback, allowed, |value| match value {
            Value::Text(text) => parse(text),
            _ => Err(None),
        })
    }

    pub fn known(&self, names: &[&'static str]) {
        self.asked.borrow_mut().extend(names);
    }

    /// Reads a value. `typed` converts text from the environment to the key's type, for `parse`; `Err` has a hint, if
    /// there is one.
    pub fn read<T>(
        &self,
        key: &'static str,
        typed: impl FnOnce(&Value) -> Value,
        fallback: T,
        allowed: &str,
        parse: impl FnOnce(&Value) -> Parsed<T>,
    ) -> T {
        let Some(found) = self.get(key, allowed) else { return fallback };
        let (value, origin) = (typed(&Value::of(found)), origin(found));
        match parse(&value) {
            Ok(parsed) => {
                self.keep(key, value.to_toml(), origin);
                parsed
            }
            Err(hint) => {
                self.wrong(origin, &value, allowed, hint);
                fallback
            }
        }
    }

    fn amount<T: TryFrom<u64> + Default>(
        &self,
        key: &'static str,
        what: &str,
        parse: impl Fn(&Value) -> Parsed<u64>,
        range: RangeInclusive<u64>,
        or_else: &str,
    ) -> T {
        let allowed = format!("{what} {}{or_else}", span(*range.start(), *range.end(), ANY));
        self.read(key, Value::as_number, T::default(), &allowed, |value| in_range(parse(value)?, &range))
    }

    fn amount_or_auto<T: TryFrom<u64>>(
        &self,
        key: &'static str,
        what: &str,
        parse: fn(&Value) -> Parsed<u64>,
        range: RangeInclusive<u64>,
    ) -> Option<T> {
        let allowed = format!("\"auto\", or {what} {}", span(*range.start(), *range.end(), ANY));
        self.read(key, Value::as_number, None, &allowed, |value| match value {
            Value::Text(text) if text == "auto" => Ok(None),
            value => in_range(parse(value)?, &range).map(Some),
        })
    }

    fn get(&self, key: &'static str, allowed: &str) -> Option<&config::Value> {
        self.asked.borrow_mut().push(key);
        let table = self.table?;
        let found = table.get(key);
        if found.is_none() && !self.is_entry {
            let origin = Origin { key: join(&self.path, key), ..table_origin(table) };
            self.wrong(origin, &Value::Other("nothing".to_string()), allowed, None);
        }
        found
    }

    fn keep(&self, key: &str, value: String, origin: Origin) {
        if self.is_entry {
            return;
        }
        self.findings.keep(Effective { section: self.path.clone(), key: key.to_string(), value, origin });
    }

    fn wrong(&self, origin: Origin, value: &Value, allowed: &str, hint: Option<String>) {
        self.findings.add(Mistake { origin, found: value.in_words(), allowed: allowed.to_string(), hint });
    }

    fn report_unknown(&self) {
        let Some(table) = self.table else { return };
        let mut asked = self.asked.borrow().clone();
        let mut known = HashSet::new();
        asked.retain(|name| known.insert(*name));
        for (name, value) in entries(table).into_iter().filter(|(name, _)| !asked.contains(name)) {
            let hint = nearest(name, asked.iter().copied()).map(|near| format!("did you mean `{near}`"));
            let (origin, found, allowed) = (origin(value), UNKNOWN.to_string(), asked.join(", "));
            self.findings.add(Mistake { origin, found, allowed, hint });
        }
    }
}

fn to_toml(value: &config::Value) -> String {
    match &value.kind {
        ValueKind::Table(table) => {
            let pair = |(name, value): (&str, &config::Value)| format!("{} = {}", join("", name), to_toml(value));
            let pairs: Vec<String> = entries(table).into_iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        _ => Value::of(value).to_toml(),
    }
}

const SIZE: &str = "bytes, as a number or with a unit such as \"8GiB\" (KiB, MiB, GiB, TiB),";

fn size(value: &Value) -> Parsed<u64> {
    match value {
        Value::Text(text) => units::bytes(text),
        value => whole(value),
    }
}

fn whole(value: &Value) -> Parsed<u64> {
    match value {
        Value::Integer(number) => u64::try_from(*number).map_err(|_| None),
        _ => Err(None),
    }
}

fn in_range<T: TryFrom<u64>>(number: u64, range: &RangeInclusive<u64>) -> Parsed<T> {
    if range.contains(&number) { T::try_from(number).map_err(|_| None) } else { Err(None) }
}

fn span<T: Display + PartialEq>(start: T, end: T, none: T) -> String {
    if end == none { format!("of at least {start}") } else { format!("from {start} to {end}") }
}

//! Values as the reader sees them: their type, their words in a message, and the conversion of text from the
//! environment.

use config::ValueKind;

use crate::origin::{Origin, SettingsLayer, quoted};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Text from the environment or a flag, which becomes the type of the key.
    Raw(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Value>),
    /// Value that few keys or none take (a date, a table), in words.
    Other(String),
}

/// Mark before a text in words, for a date or a number of any length: `config` has no kind for them.
pub(crate) const IN_WORDS: char = '\0';
pub(crate) const DATE: &str = "the date ";

impl Value {
    pub fn of(value: &config::Value) -> Value {
        match &value.kind {
            ValueKind::String(text) => match text.strip_prefix(IN_WORDS) {
                Some(words) => Value::Other(words.to_string()),
                None if Origin::of(value).layer >= SettingsLayer::Environment => Value::Raw(text.clone()),
                None => Value::Text(text.clone()),
            },
            ValueKind::I64(number) => Value::Integer(*number),
            ValueKind::Float(number) => Value::Float(*number),
            ValueKind::Boolean(value) => Value::Bool(*value),
            ValueKind::Array(values) => Value::List(values.iter().map(Value::of).collect()),
            _ => Value::table(),
        }
    }

    pub fn table() -> Value {
        Value::Other("a table".to_string())
    }

    pub fn in_words(&self) -> String {
        match self {
            Value::Raw(text) | Value::Text(text) => format!("the text {}", quoted(&shortened(text))),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number:?}"),
            Value::Bool(value) => value.to_string(),
            Value::List(_) => "a list".to_string(),
            Value::Other(words) => words.clone(),
        }
    }

    pub fn to_toml(&self) -> String {
        match self {
            Value::Raw(text) | Value::Text(text) | Value::Other(text) => quoted(text),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Bool(value) => value.to_string(),
            Value::List(values) => {
                format!("[{}]", values.iter().map(Value::to_toml).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Conversions of text from the environment to the type of the key. Text that does not convert stays text, which the
/// key then refuses.
impl Value {
    pub fn as_text(&self) -> Value {
        if let Value::Raw(text) = self { Value::Text(text.clone()) } else { self.clone() }
    }

    pub fn as_bool(&self) -> Value {
        let Value::Raw(text) = self else { return self.clone() };
        text.parse().map_or(Value::Text(text.clone()), Value::Bool)
    }

    pub fn as_number(&self) -> Value {
        let Value::Raw(text) = self else { return self.clone() };
        let plain = text.replace('_', "");
        match (plain.parse::<i64>(), plain.parse::<f64>()) {
            (Ok(number), _) => Value::Integer(number),
            (_, Ok(number)) if number.is_finite() => Value::Float(number),
            _ => Value::Text(text.clone()),
        }
    }

    pub fn as_list(&self) -> Value {
        let Value::Raw(text) = self else { return self.clone() };
        if text.trim_start().starts_with('[') {
            let Ok(toml::Value::Array(items)) = text.parse() else { return Value::Text(text.clone()) };
            let item = |item: toml::Value| {
                item.as_str().map_or(Value::Other(item.to_string()), |text| Value::Text(text.into()))
            };
            return Value::List(items.into_iter().map(item).collect());
        }
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Value::List(items.map(|item| Value::Text(item.to_string())).collect())
    }

    /// Splits `a=1, b` into two names, one of them with a value. Returns any other value as the error.
    pub fn as_pairs(&self) -> Result<Vec<(String, Option<Value>)>, Value> {
        let pair = |text: &str| match text.split_once('=') {
            Some((name, value)) => (name.trim().to_string(), Some(Value::Raw(value.trim().to_string()).as_number())),
            None => (text.to_string(), None),
        };
        let list = self.as_list();
        let Value::List(items) = &list else { return Err(list) };
        let texts = items.iter().map(|item| match item {
            Value::Text(text) => Some(pair(text)),
            _ => None,
        });
        texts.collect::<Option<_>>().ok_or(list)
    }

    pub fn as_moment(&self) -> Value {
        match self {
            Value::Other(words) => words.strip_prefix(DATE).map_or(self.clone(), |date| Value::Text(date.to_string())),
            other => other.as_text(),
        }
    }
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

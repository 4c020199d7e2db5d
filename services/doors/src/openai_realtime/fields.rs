//! Reads fields out of a client's JSON. A field that is `null` is a field that is not there.

use super::{ErrorBody, ErrorCode};
use serde_json::{Map, Value};

/// A JSON object and where it stands in the event, so that errors can name the field.
#[derive(Clone)]
pub struct Fields<'a> {
    pub map: &'a Map<String, Value>,
    path: String,
}

type Read<T> = Result<T, ErrorBody>;

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { map, path: String::new() }
    }

    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Told apart from a field that is not there.
    pub fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    pub fn text(&self, key: &str) -> Read<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn required_text(&self, key: &str) -> Read<&'a str> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn flag(&self, key: &str) -> Read<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn number(&self, key: &str) -> Read<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A whole number of at least 0; clients in languages without integers send `1200.0`.
    pub fn count(&self, key: &str) -> Read<Option<u64>> {
        self.typed(key, "a whole number of at least 0", |value| {
            value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
        })
    }

    pub fn list(&self, key: &str) -> Read<Option<&'a Vec<Value>>> {
        self.typed(key, "a list", Value::as_array)
    }

    pub fn object(&self, key: &str) -> Read<Option<Fields<'a>>> {
        let map = self.typed(key, "an object", Value::as_object)?;
        Ok(map.map(|map| Fields { map, path: self.path(key) }))
    }

    pub fn required_object(&self, key: &str) -> Read<Fields<'a>> {
        self.object(key)?.ok_or_else(|| self.missing(key))
    }

    /// The objects in a list.
    pub fn objects(&self, key: &str) -> Read<Option<Vec<Fields<'a>>>> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let read = |(index, value): (usize, &'a Value)| {
            let path = format!("{}[{index}]", self.path(key));
            match value.as_object() {
                Some(map) => Ok(Fields { map, path }),
                None => Err(wrong_type("an object", value).param(path)),
            }
        };
        list.iter().enumerate().map(read).collect::<Read<Vec<_>>>().map(Some)
    }

    pub fn missing(&self, key: &str) -> ErrorBody {
        let path = self.path(key);
        ErrorBody::new(ErrorCode::MissingRequiredParameter, format!("missing required parameter: '{path}'")).param(path)
    }

    pub fn invalid(&self, key: &str, message: impl std::fmt::Display) -> ErrorBody {
        let path = self.path(key);
        ErrorBody::new(ErrorCode::InvalidValue, format!("invalid value for '{path}': {message}")).param(path)
    }

    pub fn too_large(&self, key: &str, limit: usize, unit: &str) -> ErrorBody {
        let path = self.path(key);
        ErrorBody::new(ErrorCode::ValueTooLarge, format!("'{path}' is larger than {limit} {unit}")).param(path)
    }

    fn typed<T>(&self, key: &str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Read<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(wrong_type(expected, value).param(self.path(key))),
            },
        }
    }
}

fn wrong_type(expected: &str, value: &Value) -> ErrorBody {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ErrorBody::new(ErrorCode::InvalidType, format!("expected {expected}, found {found}"))
}

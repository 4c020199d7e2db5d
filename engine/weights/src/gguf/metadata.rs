//! The keys and values of a GGUF file, and the questions a loader asks them. Every answer that is not as expected
//! is an error that names the key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, shown};

#[derive(Debug)]
pub(crate) struct Metadata {
    path: PathBuf,
    values: HashMap<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    /// Little-endian, as in the file.
    Numbers {
        element: Kind,
        raw: Vec<u8>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl Metadata {
    pub fn new(path: &Path) -> Metadata {
        Metadata { path: path.to_path_buf(), values: HashMap::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False where the key is there already.
    pub fn insert(&mut self, key: String, value: Value) -> bool {
        self.values.insert(key, value).is_none()
    }

    #[cfg(test)]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(value) => match value.as_unsigned() {
                Some(number) if !matches!(value, Value::Bool(_)) => Ok(Some(number)),
                _ => Err(self.wrong(key, value, "a whole number that is not negative")),
            },
        }
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        let found = match self.values.get(key) {
            None => return Ok(None),
            Some(value) => value,
        };
        match found {
            Value::Float(number) if number.is_finite() => Ok(Some(*number)),
            Value::Unsigned(number) => Ok(Some(*number as f64)),
            Value::Signed(number) => Ok(Some(*number as f64)),
            other => Err(self.wrong(key, other, "a finite number")),
        }
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::Unsigned(flag @ 0..=1)) => Ok(Some(*flag == 1)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// A list of whole numbers or of bools (as 0 and 1). A single number is None: see `unsigned`.
    pub fn unsigned_list(&self, key: &str) -> Result<Option<Vec<u64>>, Error> {
        match self.values.get(key) {
            Some(value @ Value::Numbers { element, raw }) => {
                let numbers = raw.chunks_exact(element.size()).map(|raw| Value::number(*element, raw)?.as_unsigned());
                match numbers.collect() {
                    Some(numbers) => Ok(Some(numbers)),
                    None => Err(self.wrong(key, value, "a list of whole numbers that are not negative")),
                }
            }
            None | Some(Value::Unsigned(_) | Value::Signed(_) | Value::Bool(_)) => Ok(None),
            Some(other) => Err(self.wrong(key, other, "a list of whole numbers")),
        }
    }

    pub fn text_list(&self, key: &str) -> Result<Option<&[String]>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Strings(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(key, other, "a list of strings")),
        }
    }

    pub fn missing(&self, key: &str, expected: &str) -> Error {
        Error::key(&self.path, key, "no such key", expected)
    }

    pub fn wrong(&self, key: &str, found: &Value, expected: impl Into<String>) -> Error {
        Error::key(&self.path, key, found.describe(), expected)
    }
}

impl Value {
    /// One number or bool from its bytes; None for a bool that is neither 0 nor 1.
    pub fn number(kind: Kind, raw: &[u8]) -> Option<Value> {
        Some(match kind {
            Kind::U8 => Value::Unsigned(u8::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::I8 => Value::Signed(i8::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::U16 => Value::Unsigned(u16::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::I16 => Value::Signed(i16::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::U32 => Value::Unsigned(u32::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::I32 => Value::Signed(i32::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::F32 => Value::Float(f32::from_le_bytes(raw.try_into().ok()?).into()),
            Kind::U64 => Value::Unsigned(u64::from_le_bytes(raw.try_into().ok()?)),
            Kind::I64 => Value::Signed(i64::from_le_bytes(raw.try_into().ok()?)),
            Kind::F64 => Value::Float(f64::from_le_bytes(raw.try_into().ok()?)),
            Kind::Bool => match raw {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return None,
            },
            Kind::String | Kind::Array => return None,
        })
    }

    fn as_unsigned(&self) -> Option<u64> {
        match self {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            Value::Bool(flag) => Some((*flag).into()),
            _ => None,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Value::Unsigned(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::String(text) => format!("the string '{}'", shown(text)),
            Value::Strings(list) => format!("a list of {} strings", list.len()),
            Value::Numbers { element, raw } => {
                format!("a list of {} of type {}", raw.len() / element.size(), element.name())
            }
        }
    }
}

impl Kind {
    pub fn from_code(code: u32) -> Option<Kind> {
        use Kind::*;
        let in_order = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        in_order.get(usize::try_from(code).ok()?).copied()
    }

    /// Bytes of one value; of strings and lists, those of their length.
    pub fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::String | Kind::Array => 8,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::U8 => "u8",
            Kind::I8 => "i8",
            Kind::U16 => "u16",
            Kind::I16 => "i16",
            Kind::U32 => "u32",
            Kind::I32 => "i32",
            Kind::F32 => "f32",
            Kind::Bool => "bool",
            Kind::String => "string",
            Kind::Array => "list",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
        }
    }
}

//! The keys and values of a GGUF file, and the questions a loader asks them. Every answer that is not as expected
//! is an error that names the key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, shown};

#[derive(Debug)]
pub(crate) struct Metadata {
    path: PathBuf,
    values: HashMap<String, MetadataValue>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetadataValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    /// Little-endian, as in the file.
    Numbers {
        element: ValueType,
        raw: Vec<u8>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
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
    pub fn insert(&mut self, key: String, value: MetadataValue) -> bool {
        self.values.insert(key, value).is_none()
    }

    #[cfg(test)]
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(MetadataValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(value) => match value.as_unsigned() {
                Some(number) if !matches!(value, MetadataValue::Bool(_)) => Ok(Some(number)),
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
            MetadataValue::Float(number) if number.is_finite() => Ok(Some(*number)),
            MetadataValue::Unsigned(number) => Ok(Some(*number as f64)),
            MetadataValue::Signed(number) => Ok(Some(*number as f64)),
            other => Err(self.wrong(key, other, "a finite number")),
        }
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(MetadataValue::Bool(flag)) => Ok(Some(*flag)),
            Some(MetadataValue::Unsigned(flag @ 0..=1)) => Ok(Some(*flag == 1)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// A list of whole numbers or of bools (as 0 and 1). A single number is None: see `unsigned`.
    pub fn unsigned_list(&self, key: &str) -> Result<Option<Vec<u64>>, Error> {
        match self.values.get(key) {
            Some(value @ MetadataValue::Numbers { element, raw }) => {
                let numbers =
                    raw.chunks_exact(element.size()).map(|raw| MetadataValue::number(*element, raw)?.as_unsigned());
                match numbers.collect() {
                    Some(numbers) => Ok(Some(numbers)),
                    None => Err(self.wrong(key, value, "a list of whole numbers that are not negative")),
                }
            }
            None | Some(MetadataValue::Unsigned(_) | MetadataValue::Signed(_) | MetadataValue::Bool(_)) => Ok(None),
            Some(other) => Err(self.wrong(key, other, "a list of whole numbers")),
        }
    }

    pub fn text_list(&self, key: &str) -> Result<Option<&[String]>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(MetadataValue::Strings(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(key, other, "a list of strings")),
        }
    }

    pub fn missing(&self, key: &str, expected: &str) -> Error {
        Error::key(&self.path, key, "no such key", expected)
    }

    pub fn wrong(&self, key: &str, found: &MetadataValue, expected: impl Into<String>) -> Error {
        Error::key(&self.path, key, found.describe(), expected)
    }
}

impl MetadataValue {
    /// One number or bool from its bytes; None for a bool that is neither 0 nor 1.
    pub fn number(kind: ValueType, raw: &[u8]) -> Option<MetadataValue> {
        Some(match kind {
            ValueType::U8 => MetadataValue::Unsigned(u8::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::I8 => MetadataValue::Signed(i8::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::U16 => MetadataValue::Unsigned(u16::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::I16 => MetadataValue::Signed(i16::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::U32 => MetadataValue::Unsigned(u32::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::I32 => MetadataValue::Signed(i32::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::F32 => MetadataValue::Float(f32::from_le_bytes(raw.try_into().ok()?).into()),
            ValueType::U64 => MetadataValue::Unsigned(u64::from_le_bytes(raw.try_into().ok()?)),
            ValueType::I64 => MetadataValue::Signed(i64::from_le_bytes(raw.try_into().ok()?)),
            ValueType::F64 => MetadataValue::Float(f64::from_le_bytes(raw.try_into().ok()?)),
            ValueType::Bool => match raw {
                [0] => MetadataValue::Bool(false),
                [1] => MetadataValue::Bool(true),
                _ => return None,
            },
            ValueType::String | ValueType::Array => return None,
        })
    }

    fn as_unsigned(&self) -> Option<u64> {
        match self {
            MetadataValue::Unsigned(number) => Some(*number),
            MetadataValue::Signed(number) => u64::try_from(*number).ok(),
            MetadataValue::Bool(flag) => Some((*flag).into()),
            _ => None,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            MetadataValue::Unsigned(number) => number.to_string(),
            MetadataValue::Signed(number) => number.to_string(),
            MetadataValue::Float(number) => number.to_string(),
            MetadataValue::Bool(flag) => flag.to_string(),
            MetadataValue::String(text) => format!("the string '{}'", shown(text)),
            MetadataValue::Strings(list) => format!("a list of {} strings", list.len()),
            MetadataValue::Numbers { element, raw } => {
                format!("a list of {} of type {}", raw.len() / element.size(), element.name())
            }
        }
    }
}

impl ValueType {
    pub fn from_code(code: u32) -> Option<ValueType> {
        use ValueType::*;
        let in_order = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        in_order.get(usize::try_from(code).ok()?).copied()
    }

    /// Bytes of one value; of strings and lists, those of their length.
    pub fn size(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String | ValueType::Array => 8,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "list",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

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

/// Types of values, in the order of the format's numbers.
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

/// (type, name, bytes of one value; of strings and lists those of their length)
const TYPES: [(ValueType, &str, usize); 13] = [
    (ValueType::U8, "u8", 1),
    (ValueType::I8, "i8", 1),
    (ValueType::U16, "u16", 2),
    (ValueType::I16, "i16", 2),
    (ValueType::U32, "u32", 4),
    (ValueType::I32, "i32", 4),
    (ValueType::F32, "f32", 4),
    (ValueType::Bool, "bool", 1),
    (ValueType::String, "string", 8),
    (ValueType::Array, "list", 8),
    (ValueType::U64, "u64", 8),
    (ValueType::I64, "i64", 8),
    (ValueType::F64, "f64", 8),
];

impl Metadata {
    pub fn new(path: &Path) -> Metadata {
        Metadata { path: path.to_path_buf(), values: HashMap::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a key. False: the key is there already.
    pub fn insert(&mut self, key: String, value: MetadataValue) -> bool {
        self.values.insert(key, value).is_none()
    }

    #[cfg(test)]
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.read(key, "a string", |value| match value {
            MetadataValue::String(text) => Some(&text[..]),
            _ => None,
        })
    }

    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.read(key, "a whole number that is not negative", |value| match value {
            MetadataValue::Bool(_) => None,
            value => value.as_unsigned(),
        })
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.read(key, "a finite number", |value| match value {
            MetadataValue::Float(number) if number.is_finite() => Some(*number),
            MetadataValue::Unsigned(number) => Some(*number as f64),
            MetadataValue::Signed(number) => Some(*number as f64),
            _ => None,
        })
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.read(key, "true or false", |value| match value {
            MetadataValue::Bool(flag) => Some(*flag),
            MetadataValue::Unsigned(flag @ 0..=1) => Some(*flag == 1),
            _ => None,
        })
    }

    /// Reads a list of whole numbers or of bools (as 0 and 1). None: no such key, or a single number (see `unsigned`).
    pub fn unsigned_list(&self, key: &str) -> Result<Option<Vec<u64>>, Error> {
        let list = self.read(key, "a list of whole numbers that are not negative", |value| match value {
            MetadataValue::Numbers { element, raw } => {
                let numbers = raw.chunks_exact(element.size());
                numbers.map(|raw| MetadataValue::number(*element, raw)?.as_unsigned()).collect::<Option<_>>().map(Some)
            }
            MetadataValue::Unsigned(_) | MetadataValue::Signed(_) | MetadataValue::Bool(_) => Some(None),
            _ => None,
        })?;
        Ok(list.flatten())
    }

    pub fn text_list(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.read(key, "a list of strings", |value| match value {
            MetadataValue::Strings(list) => Some(&list[..]),
            _ => None,
        })
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        of: impl Fn(&'a MetadataValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let wrong = || Error::key(&self.path, key, value.describe(), expected);
        of(value).ok_or_else(wrong).map(Some)
    }

    pub fn missing(&self, key: &str, expected: &str) -> Error {
        Error::key(&self.path, key, "no such key", expected)
    }
}

impl MetadataValue {
    /// Reads a number or bool from its bytes. None: a bool that is neither 0 nor 1.
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
        TYPES.get(usize::try_from(code).ok()?).map(|(kind, ..)| *kind)
    }

    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    pub fn size(self) -> usize {
        TYPES[self as usize].2
    }
}

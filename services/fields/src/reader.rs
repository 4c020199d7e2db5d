//! Reads a client's JSON into the types of `events`, and says what is wrong, where, and what is allowed there.
//!
//! An enum with fields is told by the `type` beside its fields. Reading that is left to this reader and not to serde's
//! `tag`, which would forget where in the event a mistake is. A field that is `null` is a field that is not there.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;
use std::fmt::Display;

pub type Read<T> = Result<T, FieldError>;

/// Mistake of a client. The path to it grows as the error is handed up.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{code} at {path:?}")]
pub struct FieldError {
    pub code: &'static str,
    pub path: String,
    problem: Problem,
}

#[derive(Debug, PartialEq)]
enum Problem {
    Missing,
    Invalid(String),
    TooLarge(usize, &'static str),
    Kind(String),
    Other(String),
}

impl FieldError {
    pub fn missing(path: &str) -> FieldError {
        FieldError { code: "missing_required_parameter", path: path.to_owned(), problem: Problem::Missing }
    }

    pub fn invalid(path: &str, allowed: impl Display) -> FieldError {
        FieldError { code: "invalid_value", path: path.to_owned(), problem: Problem::Invalid(allowed.to_string()) }
    }

    pub fn too_large(path: &str, limit: usize, unit: &'static str) -> FieldError {
        FieldError { code: "value_too_large", path: path.to_owned(), problem: Problem::TooLarge(limit, unit) }
    }

    pub fn new(code: &'static str, path: &str, message: impl Into<String>) -> FieldError {
        FieldError { code, path: path.to_owned(), problem: Problem::Other(message.into()) }
    }

    /// Puts a field, or the entry `[index]` of a list, before the path.
    pub fn under(mut self, field: &str) -> FieldError {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{field}{dot}{}", self.path);
        self
    }

    pub fn message(&self) -> String {
        let path = &self.path;
        match &self.problem {
            Problem::Missing => format!("missing required parameter: '{path}'"),
            Problem::Invalid(allowed) => format!("invalid value for '{path}': {allowed}"),
            Problem::TooLarge(limit, unit) => format!("'{path}' is larger than {limit} {unit}"),
            Problem::Kind(found) if path.is_empty() => found.clone(),
            Problem::Kind(found) => format!("invalid type for '{path}': {found}"),
            Problem::Other(message) => message.clone(),
        }
    }

    fn expected(expected: &str, found: &Value) -> FieldError {
        let found = match found {
            Value::Null => return FieldError::missing(""),
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        FieldError::kind(format!("expected {expected}, found {found}"))
    }

    fn kind(found: String) -> FieldError {
        FieldError { code: "invalid_type", path: String::new(), problem: Problem::Kind(found) }
    }
}

pub fn wrong(path: &str, message: impl Into<String>) -> FieldError {
    FieldError::new("invalid_value", path, message)
}

/// Returns the error of a field that cannot be honoured, in the word that OpenAI's clients know.
pub fn unsupported(path: &str, message: impl Into<String>) -> FieldError {
    FieldError::new("unsupported_parameter", path, message)
}

impl Error for FieldError {
    fn custom<T: Display>(message: T) -> FieldError {
        FieldError::kind(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> FieldError {
        let found = match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Str(_) | Unexpected::Char(_) => "a string",
            Unexpected::Seq => "a list",
            Unexpected::Map => "an object",
            _ => "something else",
        };
        FieldError::kind(format!("expected {expected}, found {found}"))
    }

    fn missing_field(field: &'static str) -> FieldError {
        FieldError::missing(field)
    }

    fn unknown_variant(_: &str, allowed: &'static [&'static str]) -> FieldError {
        FieldError::invalid("", allowed.join(", "))
    }
}

pub fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Read<T> {
    T::deserialize(Reader(value))
}

#[derive(Clone, Copy)]
struct Reader<'de>(&'de Value);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Number(number) => number.deserialize_any(visitor).map_err(FieldError::custom),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_bool(self.0.as_bool().ok_or_else(|| FieldError::expected("true or false", self.0))?)
    }

    /// Reads `1200.0` too, which clients in languages without integers send.
    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let whole = || self.0.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64);
        let count = self.0.as_u64().or_else(whole);
        visitor.visit_u64(count.ok_or_else(|| FieldError::expected("a whole number of at least 0", self.0))?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let whole = || self.0.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < WHOLE).map(|n| n as i64);
        let number = self.0.as_i64().or_else(whole);
        visitor.visit_i64(number.ok_or_else(|| FieldError::expected("a whole number", self.0))?)
    }

    /// Reads numbers beyond every `f32` as infinite, which no range has.
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_f64(self.0.as_f64().ok_or_else(|| FieldError::expected("a number", self.0))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_borrowed_str(self.0.as_str().ok_or_else(|| FieldError::expected("a string", self.0))?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let list = self.0.as_array().ok_or_else(|| FieldError::expected("a list", self.0))?;
        visitor.visit_seq(Entries(list.iter().enumerate()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let object = self.0.as_object().ok_or_else(|| FieldError::expected("an object", self.0))?;
        visitor.visit_map(Fields { fields: object.iter(), value: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_enum(self)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 u8 u16 u32 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
    }
}

/// Least number that a float does not tell exactly.
const WHOLE: f64 = (1_u64 << 53) as f64;

impl<'de> EnumAccess<'de> for Reader<'de> {
    type Error = FieldError;
    type Variant = Reader<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Read<(V::Value, Reader<'de>)> {
        let word = match self.0 {
            Value::Object(fields) => {
                let word = fields.get("type").ok_or_else(|| FieldError::missing("type"))?;
                seed.deserialize(Reader(word)).map_err(|wrong| wrong.under("type"))?
            }
            _ => seed.deserialize(self)?,
        };
        Ok((word, self))
    }
}

impl<'de> VariantAccess<'de> for Reader<'de> {
    type Error = FieldError;

    fn unit_variant(self) -> Read<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Read<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Read<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Read<V::Value> {
        self.deserialize_map(visitor)
    }
}

struct Entries<'de>(std::iter::Enumerate<std::slice::Iter<'de, Value>>);

impl<'de> SeqAccess<'de> for Entries<'de> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        let Some((index, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Reader(value)).map(Some).map_err(|wrong| wrong.under(&format!("[{index}]")))
    }
}

struct Fields<'de> {
    fields: serde_json::map::Iter<'de>,
    value: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        self.value = self.fields.next().map(|(name, value)| (name.as_str(), value));
        let Some((name, _)) = self.value else { return Ok(None) };
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Read<V::Value> {
        let (name, value) = self.value.take().ok_or_else(|| FieldError::missing(""))?;
        seed.deserialize(Reader(value)).map_err(|wrong| wrong.under(name))
    }
}

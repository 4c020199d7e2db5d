//! Keeps text from outside from becoming control tokens. A user may type `<|im_end|>`; in the rendered prompt only its
//! position tells it from the template's own.
//!
//! Before rendering, each `<` in messages and tools that begins (or, at the end of a string, may begin) a `<|...|>`
//! becomes a private-use character that occurs nowhere else; after rendering that character becomes `<` again and its
//! position is noted. The rendered text is the same to the byte. Only `<|...|>` is treated so: the template itself
//! looks for `<think>` and `<tool_response>` in content.

use super::{MARKS, python};
use crate::Error;
use minijinja::Value;
use serde_json::Value as Json;
use std::collections::HashSet;

/// Chosen anew for each prompt: None when nothing in it needs one.
#[derive(Debug, Clone, Copy)]
pub struct Mark(Option<char>);

impl Mark {
    pub fn choose<'a>(values: impl Iterator<Item = &'a Json> + Clone, template: &str) -> Result<Self, Error> {
        let mut needed = false;
        for value in values.clone() {
            each_string(value, &mut |text| needed |= next_to_mark(text, 0).is_some());
        }
        if !needed {
            return Ok(Self(None));
        }
        let mut taken = HashSet::new();
        let mut take = |text: &str| taken.extend(text.chars().filter(|c| MARKS.contains(c)));
        take(template);
        for value in values {
            each_string(value, &mut take);
        }
        let free = MARKS.clone().find(|c| !taken.contains(c));
        match free {
            Some(mark) => Ok(Self(Some(mark))),
            None => Err(Error::Request("its text uses every private-use character there is".to_string())),
        }
    }

    /// A JSON value as the template sees it.
    pub fn value_of(self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(bool) => Value::from(*bool),
            Json::Number(number) => number_of(number),
            Json::String(text) => self.text_of(text),
            Json::Array(items) => Value::from(items.iter().map(|item| self.value_of(item)).collect::<Vec<_>>()),
            Json::Object(map) => {
                Value::from_pairs(map.iter().map(|(key, value)| (self.text_of(key), self.value_of(value))))
            }
        }
    }

    fn text_of(self, text: &str) -> Value {
        let Some(mark) = self.0 else { return Value::from(text) };
        let mut marked = String::new();
        let mut done = 0;
        while let Some(at) = next_to_mark(text, done) {
            marked.push_str(&text[done..at]);
            marked.push(mark);
            done = at + 1;
        }
        if done == 0 {
            return Value::from(text);
        }
        marked.push_str(&text[done..]);
        Value::from(marked)
    }

    /// The text with `<` where the marks were, and where that is.
    pub fn restore(self, rendered: String) -> (String, Vec<usize>) {
        let Some(mark) = self.0 else { return (rendered, Vec::new()) };
        let mut text = String::with_capacity(rendered.len());
        let mut positions = Vec::new();
        let mut rest = rendered.as_str();
        while let Some((before, after)) = rest.split_once(mark) {
            text.push_str(before);
            positions.push(text.len());
            text.push('<');
            rest = after;
        }
        text.push_str(rest);
        (text, positions)
    }
}

/// The next `<` that may begin a control token: one before `|`, or one with only white space after it, because the
/// template may write a `|` behind it.
fn next_to_mark(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let may_begin = |at: usize| match bytes.get(at + 1) {
        Some(b'|') => true,
        _ => text[at + 1..].chars().all(python::is_space),
    };
    (from..bytes.len()).find(|at| bytes[*at] == b'<' && may_begin(*at))
}

fn number_of(number: &serde_json::Number) -> Value {
    if let Some(number) = number.as_u64() {
        Value::from(number)
    } else if let Some(number) = number.as_i64() {
        Value::from(number)
    } else {
        Value::from(number.as_f64().unwrap_or(f64::NAN))
    }
}

fn each_string(value: &Json, each: &mut impl FnMut(&str)) {
    match value {
        Json::String(text) => each(text),
        Json::Array(items) => items.iter().for_each(|item| each_string(item, each)),
        Json::Object(map) => {
            for (key, value) in map {
                each(key);
                each_string(value, each);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

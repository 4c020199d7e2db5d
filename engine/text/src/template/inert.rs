//! Keeps text from outside from becoming control tokens. A user may type `<|im_end|>` or `</tool_response>`; in the
//! rendered prompt only its position tells it from the template's own.
//!
//! Before rendering, each `<` in messages, tools and options, with which all control tokens of the family begin,
//! becomes a private-use character that occurs nowhere else; after rendering, that character becomes `<` again and its
//! position is noted. The rendered text is the same to the byte, except that a template does not find its own tags in
//! such text.
//!
//! Templates look for the model's reasoning in the text of an assistant's message: there `<think>` and `</think>` stay.

use super::MARKS;
use crate::Error;
use minijinja::Value;
use serde_json::Value as Json;
use std::collections::HashSet;

/// Character that marks a `<`, chosen anew for each prompt. `None` if no `<` needs a mark.
#[derive(Debug, Clone, Copy)]
pub struct Mark(Option<char>);

impl Mark {
    pub fn choose<'a>(values: impl Iterator<Item = &'a Json> + Clone, template: &str) -> Result<Self, Error> {
        let mut needed = false;
        for value in values.clone() {
            each_string(value, &mut |text| needed |= text.contains('<'));
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

    pub fn message_of(self, json: &Json) -> Value {
        match json {
            Json::Object(map) if map.get("role").and_then(Json::as_str) == Some("assistant") => {
                let of_model = |key: &str| ["content", "reasoning_content"].contains(&key);
                let fields = map.iter().map(|(key, value)| {
                    (self.text_of(key, ANY), self.value_by(value, if of_model(key) { OF_MODEL } else { ANY }))
                });
                Value::from_pairs(fields)
            }
            other => self.value_of(other),
        }
    }

    pub fn value_of(self, json: &Json) -> Value {
        self.value_by(json, ANY)
    }

    fn value_by(self, json: &Json, rule: MarkRule) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(bool) => Value::from(*bool),
            Json::Number(number) => number_of(number),
            Json::String(text) => self.text_of(text, rule),
            Json::Array(items) => Value::from(items.iter().map(|item| self.value_by(item, rule)).collect::<Vec<_>>()),
            Json::Object(map) => {
                Value::from_pairs(map.iter().map(|(key, value)| (self.text_of(key, rule), self.value_by(value, rule))))
            }
        }
    }

    fn text_of(self, text: &str, rule: MarkRule) -> Value {
        let Some(mark) = self.0 else { return Value::from(text) };
        let mut marked = String::new();
        let mut done = 0;
        while let Some(at) = rule(text, done) {
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

    /// Returns the text with `<` for each mark, and the positions of these.
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

type MarkRule = fn(&str, usize) -> Option<usize>;

const ANY: MarkRule = |text, from| text[from..].find('<').map(|at| from + at);

const OF_MODEL: MarkRule = |text, from| {
    let marked = |at: &usize| !["<think>", "</think>"].iter().any(|tag| text[*at..].starts_with(tag));
    text[from..].match_indices('<').map(|(at, _)| from + at).find(marked)
};

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

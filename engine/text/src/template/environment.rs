//! A minijinja environment that behaves like Python's Jinja, set up as `transformers` sets it up.

use super::date::{self, LocalTime};
use super::python::{self, JsonStyle};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use regex::Regex;

/// Name of the date in the render context, for `strftime_now`.
pub const NOW: &str = "reprise_now";

/// A template's own complaint about the messages (`raise_exception`).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TemplateRefusal(pub String);

pub fn like_python() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false);
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python::str_of(value))?),
    });
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: &Value| python::str_of(value));
    environment.add_filter("trim", |value: &Value, chars: Option<String>| strip(&python::str_of(value), chars));
    environment.add_filter("items", items);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let refusal = TemplateRefusal(python::str_of(message));
        Err(Error::new(ErrorKind::InvalidOperation, refusal.0.clone()).with_source(refusal))
    });
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// Replaces `{% generation %}`, which marks assistant text for training, by `{% if true %}`, so that the rules for
/// white space around blocks still hold.
pub fn without_generation_tags(source: &str) -> String {
    let Ok(open) = Regex::new(r"\{%([-+]?)\s*generation\s*([-+]?)%\}") else { return source.to_string() };
    let Ok(close) = Regex::new(r"\{%([-+]?)\s*endgeneration\s*([-+]?)%\}") else { return source.to_string() };
    let source = open.replace_all(source, "{%$1 if true $2%}");
    close.replace_all(&source, "{%$1 endif $2%}").into_owned()
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let failed = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    let now = state.lookup(NOW).and_then(|now| now.as_str()?.parse::<LocalTime>().ok());
    let now = now.ok_or_else(|| failed("the template asks for the date, and none was given".to_string()))?;
    date::format(now, format).map_err(|why| failed(format!("strftime_now: {why}")))
}

/// Implements `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let indent = match argument(1, "indent")? {
        None => None,
        Some(indent) => match indent.as_str() {
            Some(text) => Some(text.to_string()),
            None => Some(" ".repeat(usize::try_from(i64::try_from(indent)?.clamp(0, 64)).unwrap_or(0))),
        },
    };
    let (item_separator, key_separator) = match argument(2, "separators")? {
        Some(pair) => {
            let at = |at| pair.get_item_by_index(at).map(|text| python::str_of(&text));
            (at(0)?, at(1)?)
        }
        // With an indent Python leaves no space at the end of the line.
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        indent,
        item_separator,
        key_separator,
        sort_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
    };
    named.assert_all_used()?;
    let json = python::json_of(value, &style).map_err(|why| Error::new(ErrorKind::InvalidOperation, why))?;
    Ok(Value::from(json))
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => minijinja::filters::items(value),
        other => Err(Error::new(ErrorKind::InvalidOperation, format!("a {other} has no items, only a mapping has"))),
    }
}

/// Implements methods of Python's types. Python counts a few characters more as white space than Rust does.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let no_argument = arguments.is_empty() || matches!(arguments, [only] if only.is_none());
    match (value.as_str(), name) {
        (Some(text), "strip") if no_argument => Ok(text.trim_matches(python::is_space).into()),
        (Some(text), "lstrip") if no_argument => Ok(text.trim_start_matches(python::is_space).into()),
        (Some(text), "rstrip") if no_argument => Ok(text.trim_end_matches(python::is_space).into()),
        (Some(text), "removeprefix") => match arguments {
            [prefix] => Ok(text.strip_prefix(&*python::str_of(prefix)).unwrap_or(text).into()),
            _ => Err(Error::from(ErrorKind::MissingArgument)),
        },
        (Some(text), "removesuffix") => match arguments {
            [suffix] => Ok(text.strip_suffix(&*python::str_of(suffix)).unwrap_or(text).into()),
            _ => Err(Error::from(ErrorKind::MissingArgument)),
        },
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

fn strip(text: &str, chars: Option<String>) -> String {
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_string(),
        None => text.trim_matches(python::is_space).to_string(),
    }
}

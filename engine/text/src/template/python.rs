//! Python's way to write values: `str()`, `repr()`, `json.dumps()`, `str.strip()`. Templates were written for and
//! tested with Python, and one different character is a different prompt.

use minijinja::Value;
use minijinja::value::ValueKind;
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

/// Writes `str(value)`, as `{{ value }}` and the filter `string` do.
pub fn str_of(value: &Value) -> String {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.to_string(),
        (None, ValueKind::Undefined) => String::new(),
        _ => repr_of(value),
    }
}

pub fn repr_of(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, &mut out);
    out
}

/// Writes a float as `repr(float)` does: the shortest digits that read back as the same number.
pub fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        if plain.contains('.') { plain } else { plain + ".0" }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    }
}

/// Tests for white space as `str.strip()` does: four separators more than Unicode.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Options of `json.dumps`; the default is the one of chat templates: `", "`, `": "`, no indent, non-ASCII as it is.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

pub fn json_of(value: &Value, style: &JsonStyle) -> Result<String, String> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), String> {
    if let Some(text) = value.as_str() {
        write_json_string(text, style.ensure_ascii, out);
        return Ok(());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = items_of(value)?;
            write_json_items(items.len(), ['[', ']'], style, depth, out, |at, out| {
                write_json(&items[at], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut pairs = pairs_of(value)?;
            if style.sort_keys {
                pairs.sort_by_key(|(key, _)| str_of(key));
            }
            write_json_items(pairs.len(), ['{', '}'], style, depth, out, |at, out| {
                let (key, value) = &pairs[at];
                write_json_string(&json_key(key)?, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write_json(value, style, depth + 1, out)
            })?;
        }
        ValueKind::Undefined => return Err("an undefined value has no JSON form".to_string()),
        other => return Err(format!("a value of the kind {other} has no JSON form")),
    }
    Ok(())
}

fn write_json_items(
    count: usize,
    brackets: [char; 2],
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut write: impl FnMut(usize, &mut String) -> Result<(), String>,
) -> Result<(), String> {
    let new_line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    out.push(brackets[0]);
    for at in 0..count {
        if at > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(depth + 1, out);
        write(at, out)?;
    }
    if count > 0 {
        new_line(depth, out);
    }
    out.push(brackets[1]);
    Ok(())
}

fn write_json_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && !(' '..='~').contains(&c) && c != '\u{7f}') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn json_key(key: &Value) -> Result<String, String> {
    match key.kind() {
        ValueKind::String => Ok(str_of(key)),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number => Ok(json_number(key)),
        other => Err(format!("a key of the kind {other} has no JSON form")),
    }
}

fn json_number(value: &Value) -> String {
    match float_of(value) {
        Some(number) if number.is_nan() => "NaN".to_string(),
        Some(number) if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_string(),
        Some(number) => float_repr(number),
        None => value.to_string(),
    }
}

/// Returns a float, and `None` for an integer: `5.0` and `5` are written differently.
fn float_of(value: &Value) -> Option<f64> {
    if value.is_integer() { None } else { f64::try_from(value.clone()).ok() }
}

fn write_repr(value: &Value, out: &mut String) {
    if let Some(text) = value.as_str() {
        write_repr_string(text, out);
        return;
    }
    match value.kind() {
        ValueKind::Number => match float_of(value) {
            Some(number) => out.push_str(&float_repr(number)),
            None => out.push_str(&value.to_string()),
        },
        ValueKind::Seq | ValueKind::Iterable => {
            let brackets = if value.is_tuple() { ['(', ')'] } else { ['[', ']'] };
            let items = items_of(value).unwrap_or_default();
            out.push(brackets[0]);
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_repr(item, out);
            }
            if value.is_tuple() && items.len() == 1 {
                out.push(',');
            }
            out.push(brackets[1]);
        }
        ValueKind::Map => {
            out.push('{');
            for (at, (key, value)) in pairs_of(value).unwrap_or_default().iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_repr(key, out);
                out.push_str(": ");
                write_repr(value, out);
            }
            out.push('}');
        }
        // True, False and None are written so by minijinja itself.
        _ => out.push_str(&value.to_string()),
    }
}

fn write_repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            // Possibly the mark of a `<` from content (inert.rs).
            c if super::MARKS.contains(&c) => out.push(c),
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match u32::from(c) {
                    code @ 0..0x100 => write!(out, "\\x{code:02x}"),
                    code @ 0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

fn is_printable(c: char) -> bool {
    static NOT_PRINTABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{C}\p{Z}]").ok());
    (' '..='~').contains(&c)
        || NOT_PRINTABLE.as_ref().is_some_and(|pattern| !pattern.is_match(c.encode_utf8(&mut [0; 4])))
}

fn items_of(value: &Value) -> Result<Vec<Value>, String> {
    Ok(value.try_iter().map_err(|error| error.to_string())?.collect())
}

fn pairs_of(value: &Value) -> Result<Vec<(Value, Value)>, String> {
    let keys = value.try_iter().map_err(|error| error.to_string())?;
    keys.map(|key| {
        let item = value.get_item(&key).map_err(|error| error.to_string())?;
        Ok((key, item))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (5.0, "5.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (1e-7, "1e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e22, "1e+22"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, expected) in cases {
            assert_eq!(float_repr(number), expected);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        let cases = [
            ("it's", r#""it's""#),
            (r#"it's "x""#, r#"'it\'s "x"'"#),
            ("a\nb\\\u{7f}\u{a0}é\u{200b}", r"'a\nb\\\x7f\xa0é\u200b'"),
            ("😀", "'😀'"),
        ];
        for (text, expected) in cases {
            assert_eq!(repr_of(&Value::from(text)), expected);
        }
    }
}

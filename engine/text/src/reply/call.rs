//! The inside of a call, as the family writes it:
//!
//! ```text
//! <function=set_light>
//! <parameter=room>
//! kitchen
//! </parameter>
//! </function>
//! ```

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenCall {
    pub name: String,
    pub parameters: Vec<(String, String)>,
}

/// Parses the text between `<tool_call>` and `</tool_call>`: one function or several. `None` for any other text.
pub fn parse(body: &str) -> Option<Vec<WrittenCall>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let (call, after) = function(rest)?;
        calls.push(call);
        rest = after.trim_start();
    }
    if calls.is_empty() { None } else { Some(calls) }
}

fn function(text: &str) -> Option<(WrittenCall, &str)> {
    let (name, mut rest) = opening(text, "<function=")?;
    let mut parameters = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("</function>") {
            return Some((WrittenCall { name: name.to_string(), parameters }, after));
        }
        let (key, after) = opening(rest, "<parameter=")?;
        let (value, after) = value(after)?;
        parameters.push((key.to_string(), value.to_string()));
        rest = after;
    }
}

/// Splits `<function=NAME>` into the name and the text behind it.
fn opening<'t>(text: &'t str, start: &str) -> Option<(&'t str, &'t str)> {
    let (name, rest) = text.strip_prefix(start)?.split_once('>')?;
    let name = name.trim();
    if name.is_empty() || name.contains('\n') { None } else { Some((name, rest)) }
}

/// Finds the `</parameter>` that ends a value: the one with the function's next tag behind it, because the value itself
/// may hold the tag. One line end on each side belongs to the format.
fn value(text: &str) -> Option<(&str, &str)> {
    const END: &str = "</parameter>";
    let ends = text.match_indices(END).map(|(at, _)| at);
    let (end, rest) = ends.map(|at| (at, &text[at + END.len()..])).find(|(_, rest)| {
        let rest = rest.trim_start();
        rest.starts_with("<parameter=") || rest.starts_with("</function>")
    })?;
    let value = &text[..end];
    let value = value.strip_prefix("\r\n").or(value.strip_prefix('\n')).unwrap_or(value);
    let value = value.strip_suffix("\r\n").or(value.strip_suffix('\n')).unwrap_or(value);
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, parameters: &[(&str, &str)]) -> WrittenCall {
        let parameters = parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        WrittenCall { name: name.to_string(), parameters }
    }

    #[test]
    fn calls_are_read_as_the_template_writes_them() {
        let text = "\n<function=f>\n<parameter=a>\nx\ny\n</parameter>\n<parameter=b>\n\n</parameter>\n</function>\n";
        assert_eq!(parse(text), Some(vec![call("f", &[("a", "x\ny"), ("b", "")])]));
        assert_eq!(parse("<function=f></function>"), Some(vec![call("f", &[])]));
        assert_eq!(
            parse("<function=f><parameter=a> 1 </parameter></function>"),
            Some(vec![call("f", &[("a", " 1 ")])])
        );
        assert_eq!(
            parse("<function=f></function>\n<function=g></function>"),
            Some(vec![call("f", &[]), call("g", &[])])
        );
    }

    #[test]
    fn a_value_may_hold_what_looks_like_its_end() {
        let text = "<function=f><parameter=a>\n1</parameter>2</function>3\n</parameter></function>";
        assert_eq!(parse(text), Some(vec![call("f", &[("a", "1</parameter>2</function>3")])]));
        let lines = "<function=f><parameter=a>\n\n x \n\n</parameter></function>";
        assert_eq!(parse(lines), Some(vec![call("f", &[("a", "\n x \n")])]));
    }

    #[test]
    fn anything_else_is_no_call() {
        for text in [
            "",
            "hello",
            "<function=>\n</function>",
            "<function=f>",
            "<function=f\ng></function>",
            "<function=f><parameter=a>1</function>",
            "<function=f><parameter=a></parameter>",
            "<function=f>x</function>",
            "<function=f></function> and so on",
            "{\"name\": \"f\"}",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

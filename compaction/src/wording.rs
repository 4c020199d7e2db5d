//! Texts for the model. They are files, because models are trained on exactly these.

pub const LEFT_OUT: &str = include_str!("../wording/left_out.txt").trim_ascii_end();

pub const INSTRUCTION: &str = include_str!("../wording/instruction.txt").trim_ascii_end();
pub const AGAIN: &str = include_str!("../wording/again.txt").trim_ascii_end();
pub const PREFACE: &str = include_str!("../wording/preface.txt");
pub const PINS: &str = include_str!("../wording/pins.txt");
pub const FACTS: &str = include_str!("../wording/facts.txt");

/// Replaces each `{name}` by its value, in one pass: a value that looks like a name stays as it is.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let found = rest.find('}').and_then(|close| {
            let value = values.iter().find(|(name, _)| *name == &rest[1..close])?;
            Some((close + 1, value.1))
        });
        let (taken, value) = found.unwrap_or((1, "{"));
        filled.push_str(value);
        rest = &rest[taken..];
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_looks_like_a_name_stays_what_it_is() {
        assert_eq!(fill("{a}{b} {c} {", &[("a", "{b}"), ("b", "2")]), "{b}2 {c} {");
    }

    #[test]
    fn every_name_in_the_files_is_known() {
        let names = |text: &str| text.matches('{').count();
        assert_eq!([INSTRUCTION, AGAIN, PREFACE, PINS, FACTS, LEFT_OUT].map(names), [1, 2, 2, 1, 1, 0]);
        for (text, name) in [(INSTRUCTION, "{words}"), (AGAIN, "{missing}"), (AGAIN, "{words}"), (PREFACE, "{pins}")] {
            assert!(text.contains(name), "{name}");
        }
    }
}

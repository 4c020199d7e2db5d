//! A window size in code is a promise broken: the window is a number in `config/`, so it is looked for here in every
//! dress, `32768`, `0x8000`, `32 * 1024`, `1 << 15`, `2usize.pow(15)`, through a constant, in a text, in a script.
//!
//! A number that only happens to be one (bytes of a buffer, all values of 16 bits) says so on its line or the line above:
//! `// not a window: bytes read at once`.

use std::collections::BTreeMap;

use super::lexer::{At, Language, Token, tokens, without_tests};

pub const WINDOWS: [u128; 5] = [16_384, 32_768, 65_536, 131_072, 262_144];

pub const EXCUSE: &str = "not a window: ";

/// What was found in one file: (line, the window).
pub fn find(text: &str, language: Language) -> Vec<(usize, u128)> {
    let (tokens, _) = match language {
        Language::Braces => without_tests(tokens(text, language)),
        Language::Shell => (tokens(text, language), Vec::new()),
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut found: Vec<(usize, u128)> = in_texts(&tokens);
    found.extend(in_arithmetic(simplified(tokens)));
    found.retain(|(line, _)| !excused(&lines, *line));
    found.sort_unstable();
    found.dedup();
    found
}

fn excused(lines: &[&str], line: usize) -> bool {
    let on = |line: usize| lines.get(line.wrapping_sub(1)).copied().unwrap_or_default();
    let excuse = |text: &str| text.split_once(EXCUSE).is_some_and(|(_, why)| why.trim().len() >= 5);
    let above = on(line.wrapping_sub(1)).trim_start();
    excuse(on(line)) || (excuse(above) && (above.starts_with("//") || above.starts_with('#')))
}

/// A default or a help text is code too.
fn in_texts(tokens: &[At]) -> Vec<(usize, u128)> {
    let mut found = Vec::new();
    for at in tokens {
        if let Token::Text(text) = &at.token {
            let numbers = text.split(|c: char| !(c.is_ascii_digit() || c == '_' || c == ','));
            let numbers = numbers.filter_map(|number| number.replace(['_', ','], "").parse().ok());
            found.extend(numbers.filter(|number| WINDOWS.contains(number)).map(|number| (at.line, number)));
        }
    }
    found
}

/// Every run of numbers with arithmetic between them, whatever stands around it.
fn in_arithmetic(tokens: Vec<At>) -> Vec<(usize, u128)> {
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        let Token::Number(first) = tokens[start].token else { continue };
        let mut run = vec![(None, first)];
        let mut at = start;
        loop {
            if let Some(value) = evaluate(&run).filter(|value| WINDOWS.contains(value)) {
                found.push((tokens[start].line, value));
            }
            let (Some(operator), Some(At { token: Token::Number(number), .. })) =
                (tokens.get(at + 1).and_then(|at| operator(&at.token)), tokens.get(at + 2))
            else {
                break;
            };
            run.push((Some(operator), *number));
            at += 2;
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Operator {
    Shift,
    Add,
    Subtract,
    Multiply,
    Divide,
}

fn operator(token: &Token) -> Option<Operator> {
    match token {
        Token::Shift => Some(Operator::Shift),
        Token::Mark('+') => Some(Operator::Add),
        Token::Mark('-') => Some(Operator::Subtract),
        Token::Mark('*') => Some(Operator::Multiply),
        Token::Mark('/') => Some(Operator::Divide),
        _ => None,
    }
}

/// Products first, then sums, then shifts, as in Rust. None where it overflows.
fn evaluate(run: &[(Option<Operator>, u128)]) -> Option<u128> {
    let mut run = run.to_vec();
    for level in [&[Operator::Multiply, Operator::Divide][..], &[Operator::Add, Operator::Subtract], &[Operator::Shift]]
    {
        let mut at = 1;
        while at < run.len() {
            let (Some(operator), right) = run[at] else { return None };
            if !level.contains(&operator) {
                at += 1;
                continue;
            }
            let left = run[at - 1].1;
            run[at - 1].1 = match operator {
                Operator::Multiply => left.checked_mul(right)?,
                Operator::Divide => left.checked_div(right)?,
                Operator::Add => left.checked_add(right)?,
                Operator::Subtract => left.checked_sub(right)?,
                Operator::Shift => left.checked_mul(1u128.checked_shl(u32::try_from(right).ok()?)?)?,
            };
            run.remove(at);
        }
    }
    run.first().map(|(_, value)| *value)
}

/// Constants replaced by their numbers, casts dropped, `a.pow(b)` and numbers in brackets worked out.
fn simplified(tokens: Vec<At>) -> Vec<At> {
    let constants = constants(&tokens);
    let mut tokens: Vec<At> = tokens
        .into_iter()
        .map(|at| match &at.token {
            Token::Word(name) => match constants.get(name) {
                Some(number) => At { line: at.line, token: Token::Number(*number) },
                None => at,
            },
            _ => at,
        })
        .collect();
    while let Some((start, end, number)) = reducible(&tokens) {
        let line = tokens[start].line;
        tokens.splice(start..end, [At { line, token: Token::Number(number) }]);
    }
    tokens
}

/// `const KIB: usize = 1024;` of this file.
fn constants(tokens: &[At]) -> BTreeMap<String, u128> {
    let mut constants = BTreeMap::new();
    let words: Vec<&Token> = tokens.iter().map(|at| &at.token).collect();
    for window in words.windows(7) {
        if let [
            Token::Word(keyword),
            Token::Word(name),
            Token::Mark(':'),
            Token::Word(_),
            Token::Mark('='),
            Token::Number(number),
            Token::Mark(';'),
        ] = window
            && (keyword == "const" || keyword == "static")
        {
            constants.insert(name.clone(), *number);
        }
    }
    constants
}

/// The first place that can be worked out to one number: its range and the number.
fn reducible(tokens: &[At]) -> Option<(usize, usize, u128)> {
    for start in 0..tokens.len() {
        let token = |ahead: usize| tokens.get(start + ahead).map(|at| &at.token);
        match (token(0)?, token(1), token(2)) {
            (Token::Number(number), Some(Token::Word(word)), Some(Token::Word(_))) if word == "as" => {
                return Some((start, start + 3, *number));
            }
            (Token::Number(base), Some(Token::Mark('.')), Some(Token::Word(word))) if word == "pow" => {
                if let (Some(Token::Mark('(')), Some(Token::Number(power)), Some(Token::Mark(')'))) =
                    (token(3), token(4), token(5))
                    && let Some(value) = u32::try_from(*power).ok().and_then(|power| base.checked_pow(power))
                {
                    return Some((start, start + 6, value));
                }
            }
            (Token::Mark('('), Some(Token::Number(_)), _) if !is_call(tokens, start) => {
                if let Some(reduced) = bracketed(tokens, start) {
                    return Some(reduced);
                }
            }
            _ => {}
        }
    }
    None
}

/// `( 16 + 16 )`.
fn bracketed(tokens: &[At], start: usize) -> Option<(usize, usize, u128)> {
    let mut run = Vec::new();
    let mut at = start + 1;
    let mut between = None;
    loop {
        let Token::Number(number) = tokens.get(at)?.token else { return None };
        run.push((between, number));
        match &tokens.get(at + 1)?.token {
            Token::Mark(')') => return Some((start, at + 2, evaluate(&run)?)),
            token => between = Some(operator(token)?),
        }
        at += 2;
    }
}

/// `f(1024)`, `x.pow(2)` and `f::<T>(3)` are no brackets of arithmetic.
fn is_call(tokens: &[At], bracket: usize) -> bool {
    let before = bracket.checked_sub(1).and_then(|before| tokens.get(before)).map(|at| &at.token);
    matches!(before, Some(Token::Word(_) | Token::Mark(')' | ']' | '>' | '!')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<u128> {
        find(text, Language::Braces).into_iter().map(|(_, window)| window).collect()
    }

    #[test]
    fn every_dress_is_seen_through() {
        for text in [
            "let ctx = 32768;",
            "let ctx = 32_768usize;",
            "let ctx = 32768u32 as usize;",
            "let ctx = 32768.0;",
            "let ctx = 3.2768e4;",
            "let ctx = 0x8000;",
            "let ctx = 0x_80_00_u32;",
            "let ctx = 0b1000_0000_0000_0000;",
            "let ctx = 0o100000;",
            "let ctx = 32 * 1024;",
            "let ctx = 32 * 1_024;",
            "let ctx = 1024 * 32usize;",
            "let ctx = 8 * 4 * 1024;",
            "let ctx = 1 << 15;",
            "let ctx = 1usize << 15;",
            "let ctx = 32 << 10;",
            "let ctx = (32) * (1024);",
            "let ctx = (16 + 16) * 1024;",
            "let ctx = 32 as usize * 1024;",
            "let ctx = 2usize.pow(15);",
            "let ctx = 2_u32.pow(5) * 1024;",
            "let ctx = 65536 / 2; // not a window: it is one half".split(" //").next().unwrap_or_default(),
            "let ctx = sessions * 32 * 1024;",
            "const K: usize = 1024;\nlet ctx = 32 * K;",
            "#[arg(default_value = \"32768\")] ctx: u32",
            "#[arg(help = \"such as 32,768\")] ctx: u32",
            "let ctx = r#\"ctx_size = 32_768\"#;",
            "let ctx = 32 /* thousand */ * 1024;",
            "foo(32768)",
            "[32768; 4]",
            "const CTX: u32 = 32768;",
        ] {
            assert!(rust(text).contains(&32_768), "{text} was not seen");
        }
        for window in WINDOWS {
            assert_eq!(rust(&format!("x({window})")), [window]);
        }
    }

    #[test]
    fn what_is_none_is_left_alone() {
        for text in [
            "let n = 32767 + x;",
            "let n = 132768;",
            "let n = f(32) * g(1024);",
            "// 32768 tokens\n/* 32 * 1024 */",
            "#[cfg(test)]\nmod tests { const CTX: u32 = 32768; }",
            "let n = 48 * 1024;",
            "let s = \"1327680\";",
            "let n = x32768;",
            "let n = a[32] * b[1024];",
            "let n = 65536u64; // not a window: all values of 16 bits",
            "// not a window: all values of 16 bits\nlet n = 1 << 16;",
        ] {
            assert_eq!(rust(text), [0u128; 0], "{text}");
        }
    }

    #[test]
    fn an_excuse_needs_a_reason_and_reaches_one_line() {
        assert_eq!(rust("let n = 1 << 16; // not a window: "), [65_536]);
        assert_eq!(rust("// not a window: all values of 16 bits\n\nlet n = 1 << 16;"), [65_536]);
        assert_eq!(rust("let a = 1 << 16; // not a window: all values of 16 bits\nlet n = 1 << 15;"), [32_768]);
    }

    #[test]
    fn scripts_are_code() {
        let shell = |text| find(text, Language::Shell);
        assert_eq!(shell("# 32768\nexec x --ctx-size 32768"), [(2, 32_768)]);
        assert_eq!(shell("ctx=${CTX_SIZE:-65536}"), [(1, 65_536)]);
        assert_eq!(shell("n=$((32 * 1024))"), [(1, 32_768)]);
        assert_eq!(shell("echo \"window 32768\""), [(1, 32_768)]);
        assert_eq!(shell("echo 32769 $#"), []);
    }

    #[test]
    fn lines_are_told() {
        assert_eq!(find("a\nb\nlet x = 32\n    * 1024;", Language::Braces), [(3, 32_768)]);
    }
}

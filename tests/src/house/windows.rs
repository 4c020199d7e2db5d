//! A window size in code is a promise broken: the window is a number in `config/`. So it is looked for here as `32768`,
//! `0x8000`, `32 * 1024`, `1 << 15` or `2usize.pow(15)`, through a constant, in a string and in a script.
//!
//! A number that only happens to be one says so on its line or the line above: `// not a window: bytes read at once`.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{Source, line};

const WINDOWS: [u64; 5] = [16_384, 32_768, 65_536, 131_072, 262_144];
const EXCUSE: &str = "not a window: ";
const NUMBER: &str =
    r"\b(?:0x[\da-fA-F_]+|0b[01_]+|0o[0-7_]+|\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:[ui](?:\d+|size))?\b(?: as \w+)?";

static CONSTANT: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"\bconst (\w+): \w+ = ({NUMBER});")));
static OPERATOR: LazyLock<Regex> = LazyLock::new(|| pattern(r"\)?\s*(?:(\*)|(<<)|\.pow\()\s*\(?"));
static RUN: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"{NUMBER}(?:\)?\s*(?:\*|<<|\.pow\()\s*\(?{NUMBER})*")));

pub fn no_window_in_code(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let mut code = source.code_and_strings.clone();
        for constant in CONSTANT.captures_iter(&source.code_and_strings) {
            code = pattern(&format!(r"\b{}\b", &constant[1])).replace_all(&code, &constant[2]).into_owned();
        }
        let lines: Vec<&str> = source.text.lines().collect();
        for run in RUN.find_iter(&code) {
            let Some(window) = window(run.as_str()) else { continue };
            let line = line(&code, run.start());
            if !excused(&lines, line) {
                complaints.push(format!("{}:{line}: the window size {window} belongs into config/", source.path));
            }
        }
    }
    complaints.dedup();
    complaints
}

/// The window that some numbers of the run make, from left to right.
fn window(run: &str) -> Option<u64> {
    let numbers: Vec<u64> = OPERATOR.split(run).map(number).collect::<Option<_>>()?;
    let operators: Vec<_> = OPERATOR.captures_iter(run).collect();
    (0..numbers.len()).find_map(|start| {
        let mut value = Some(numbers[start]);
        for (operator, right) in operators[start..].iter().zip(&numbers[start + 1..]) {
            if value.is_some_and(|value| WINDOWS.contains(&value)) {
                break;
            }
            value = match (operator.get(1), operator.get(2)) {
                (Some(_), _) => value?.checked_mul(*right),
                (_, Some(_)) => 2u64.checked_pow(u32::try_from(*right).ok()?)?.checked_mul(value?),
                _ => value?.checked_pow(u32::try_from(*right).ok()?),
            };
        }
        value.filter(|value| WINDOWS.contains(value))
    })
}

fn number(written: &str) -> Option<u64> {
    let written = written.replace(['_', ','], "");
    let radix = [("0x", 16), ("0b", 2), ("0o", 8)].into_iter().find(|(prefix, _)| written.starts_with(prefix));
    let (digits, radix) = radix.map_or((&written[..], 10), |(prefix, radix)| (&written[prefix.len()..], radix));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

fn excused(lines: &[&str], line: usize) -> bool {
    let excuse = |text: &str| text.split_once(EXCUSE).is_some_and(|(_, why)| why.trim().len() >= 5);
    let above = line.checked_sub(2).map(|above| lines[above].trim_start()).unwrap_or_default();
    excuse(lines[line - 1]) || (excuse(above) && (above.starts_with("//") || above.starts_with('#')))
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::{files::File, source};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let files = [File::new(path, text)];
        let complaints = no_window_in_code(&source::product(&files));
        complaints.iter().filter_map(|complaint| complaint.split(':').nth(1)?.parse().ok()).collect()
    }

    #[test]
    fn every_dress_is_seen_through() {
        for text in [
            "let ctx = 32768;",
            "let ctx = 32_768usize;",
            "let ctx = 32768u32 as usize;",
            "let ctx = 32768.0;",
            "let ctx = 0x8000;",
            "let ctx = 0x_80_00_u32;",
            "let ctx = 0b1000_0000_0000_0000;",
            "let ctx = 0o100000;",
            "let ctx = 32 * 1024;",
            "let ctx = 1024 * 32usize;",
            "let ctx = 8 * 4 * 1024;",
            "let ctx = 32\n    * 1024;",
            "let ctx = 32 /* thousand */ * 1024;",
            "let ctx = (32) * (1024);",
            "let ctx = 32 as usize * 1024;",
            "let ctx = sessions * 32 * 1024;",
            "let ctx = 1 << 15;",
            "let ctx = 1usize << 15;",
            "let ctx = 32 << 10;",
            "let ctx = 2usize.pow(15);",
            "let ctx = 2_u32.pow(5) * 1024;",
            "let ctx = 65536 / 2;",
            "const CTX: u32 = 32768;",
            "const K: usize = 1024; let ctx = 32 * K;",
            "#[arg(default_value = \"32768\")] ctx: u32",
            "#[arg(help = \"such as 32,768\")] ctx: u32",
            "let ctx = r#\"ctx_size = 32_768\"#;",
            "foo(32768)",
            "[32768; 4]",
            "x(262144)",
        ] {
            assert_eq!(lines("engine/src/a.rs", text), [1], "{text}");
            assert_eq!(lines("engine/src/a.cu", text), [1], "{text}");
            assert_eq!(lines("engine/tests/a.rs", text), [0; 0], "{text}");
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
            assert_eq!(lines("engine/src/a.rs", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn an_excuse_needs_a_reason_and_reaches_one_line() {
        assert_eq!(lines("a.rs", "let n = 1 << 16; // not a window: "), [1]);
        assert_eq!(lines("a.rs", "// not a window: all values of 16 bits\n\nlet n = 1 << 16;"), [3]);
        assert_eq!(lines("a.rs", "let a = 1 << 16; // not a window: all of 16 bits\nlet n = 1 << 15;"), [2]);
    }

    #[test]
    fn scripts_are_code() {
        assert_eq!(lines("start.sh", "# 32768\nexec x --ctx-size 32768"), [2]);
        assert_eq!(lines(".ci/run", "ctx=${CTX_SIZE:-65536}"), [1]);
        assert_eq!(lines("a.run", "n=$((32 * 1024))"), [1]);
        assert_eq!(lines("a.sh", "echo \"window 32768\""), [1]);
        assert_eq!(lines("a.sh", "echo 32769 $#"), [0; 0]);
    }
}

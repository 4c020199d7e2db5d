//! Just enough of a lexer to look at code without its comments and tests: numbers, words, texts and the rest.

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Number(u128),
    Word(String),
    /// The inside of a string.
    Text(String),
    /// `<<` is one, as it is arithmetic; everything else is one character.
    Mark(char),
    Shift,
}

#[derive(Clone, Debug, PartialEq)]
pub struct At {
    pub line: usize,
    pub token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Language {
    /// Rust and CUDA: `//` and `/* */`.
    Braces,
    /// `#` begins a comment.
    Shell,
}

/// The tokens of a text without its comments.
pub fn tokens(text: &str, language: Language) -> Vec<At> {
    let chars: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0, line: 1, language, tokens: Vec::new() };
    while lexer.at < chars.len() {
        lexer.step();
    }
    lexer.tokens
}

/// Without the items under `#[cfg(test)]`. Gives also the names of modules declared so, whose files are tests.
pub fn without_tests(tokens: Vec<At>) -> (Vec<At>, Vec<String>) {
    let mark = |c| Token::Mark(c);
    let word = |text: &str| Token::Word(text.to_string());
    let attribute = [mark('#'), mark('['), word("cfg"), mark('('), word("test"), mark(')'), mark(']')];
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].iter().map(|at| &at.token).zip(&attribute).filter(|(a, b)| a == b).count() < attribute.len() {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += attribute.len();
        if let [At { token: Token::Word(keyword), .. }, At { token: Token::Word(name), .. }, end, ..] = &tokens[at..]
            && keyword == "mod"
            && end.token == mark(';')
        {
            modules.push(name.clone());
        }
        at += item_length(&tokens[at..]);
    }
    (kept, modules)
}

/// Tokens up to the end of the item that begins here: its `;` or the brace that closes it.
fn item_length(tokens: &[At]) -> usize {
    let mut depth = 0usize;
    for (index, at) in tokens.iter().enumerate() {
        match at.token {
            Token::Mark('{' | '(' | '[') => depth += 1,
            Token::Mark(')' | ']') => depth = depth.saturating_sub(1),
            Token::Mark('}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            Token::Mark(';') if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    line: usize,
    language: Language,
    tokens: Vec<At>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let c = self.chars[self.at];
        let next = self.peek(1);
        match (c, next) {
            ('/', Some('/')) if self.language == Language::Braces => self.skip_line(),
            ('/', Some('*')) if self.language == Language::Braces => self.skip_block(),
            ('#', _) if self.language == Language::Shell && self.begins_word() => self.skip_line(),
            ('"', _) => self.text(0),
            ('r', Some('"' | '#')) if self.language == Language::Braces && self.raw_hashes().is_some() => {
                let hashes = self.raw_hashes().unwrap_or(0);
                self.at += 1 + hashes;
                self.raw_text(hashes);
            }
            ('\'', _) if self.language == Language::Braces => self.character(),
            ('<', Some('<')) => self.push(Token::Shift, 2),
            _ if c.is_ascii_digit() => self.number(),
            _ if c.is_alphabetic() || c == '_' => self.word(),
            _ if c.is_whitespace() => self.advance(),
            _ => self.push(Token::Mark(c), 1),
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// In a shell `$#` and `a#b` are no comments.
    fn begins_word(&self) -> bool {
        self.at == 0 || self.chars[self.at - 1].is_whitespace()
    }

    fn advance(&mut self) {
        if self.chars[self.at] == '\n' {
            self.line += 1;
        }
        self.at += 1;
    }

    fn push(&mut self, token: Token, length: usize) {
        self.tokens.push(At { line: self.line, token });
        self.at += length;
    }

    fn skip_line(&mut self) {
        while self.at < self.chars.len() && self.chars[self.at] != '\n' {
            self.at += 1;
        }
    }

    fn skip_block(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.chars[self.at], self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.advance(),
            }
        }
    }

    fn text(&mut self, start: usize) {
        let line = self.line;
        self.at += start + 1;
        let mut text = String::new();
        while self.at < self.chars.len() && self.chars[self.at] != '"' {
            if self.chars[self.at] == '\\' {
                self.advance();
            }
            if self.at < self.chars.len() {
                text.push(self.chars[self.at]);
                self.advance();
            }
        }
        self.at += 1;
        self.tokens.push(At { line, token: Token::Text(text) });
    }

    /// `r"`, `r#"`, ... : how many hashes, if this is a raw string.
    fn raw_hashes(&self) -> Option<usize> {
        let hashes = self.chars[self.at + 1..].iter().take_while(|c| **c == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_text(&mut self, hashes: usize) {
        let line = self.line;
        self.at += 1;
        let mut text = String::new();
        while self.at < self.chars.len() {
            let closes = self.chars[self.at] == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                self.at += 1 + hashes;
                break;
            }
            text.push(self.chars[self.at]);
            self.advance();
        }
        self.tokens.push(At { line, token: Token::Text(text) });
    }

    /// `'a'`, `'\n'`, or the lifetime `'a`.
    fn character(&mut self) {
        if self.peek(1) == Some('\\') {
            self.at += 3;
            while self.at < self.chars.len() && self.chars[self.at] != '\'' {
                self.at += 1;
            }
            self.at += 1;
        } else if self.peek(2) == Some('\'') {
            self.at += 3;
        } else {
            self.at += 1;
        }
    }

    fn word(&mut self) {
        let start = self.at;
        while self.at < self.chars.len() && (self.chars[self.at].is_alphanumeric() || self.chars[self.at] == '_') {
            self.at += 1;
        }
        let word = self.chars[start..self.at].iter().collect();
        self.tokens.push(At { line: self.line, token: Token::Word(word) });
    }

    /// Any base, underscores, a type's suffix; `32768.0` and `32.768e3` count as the whole number they are.
    fn number(&mut self) {
        let start = self.at;
        while self.at < self.chars.len() {
            let c = self.chars[self.at];
            let fraction = c == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit());
            if !(c.is_ascii_alphanumeric() || c == '_' || fraction) {
                break;
            }
            self.at += 1;
        }
        let written: String = self.chars[start..self.at].iter().filter(|c| **c != '_').collect();
        let token = match value(&written) {
            Some(number) => Token::Number(number),
            None => Token::Word(written),
        };
        self.tokens.push(At { line: self.line, token });
    }
}

fn value(written: &str) -> Option<u128> {
    let lower = written.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            // A suffix such as u32 has a letter that is a digit of no base here, but for hex, where u and i are none.
            let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
            return u128::from_str_radix(&digits[..end], radix).ok();
        }
    }
    let end = lower.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'e')).unwrap_or(lower.len());
    let plain = &lower[..end];
    let whole = plain.parse::<u128>().ok();
    whole.or_else(|| {
        plain.parse::<f64>().ok().filter(|value| value.fract() == 0.0 && *value < 1e18).map(|value| value as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str, language: Language) -> Vec<u128> {
        let numbers = tokens(text, language).into_iter().filter_map(|at| match at.token {
            Token::Number(number) => Some(number),
            _ => None,
        });
        numbers.collect()
    }

    #[test]
    fn numbers_in_every_dress() {
        let text = "1 2_000usize 0xFFu32 0b101 0o17 1.5 32.0 1e3 3.2768e4 a1 7..9 x.0";
        assert_eq!(numbers(text, Language::Braces), [1, 2000, 255, 5, 15, 32, 1000, 32768, 7, 9, 0]);
    }

    #[test]
    fn comments_and_characters_are_not_code() {
        let text = "1 // 2\n/* 3 /* 4 */ 5 */ 6 '7' '\\'' 8 'a 9 r#\"10 \" 11\"# 12 \"13 \\\" 14\" 15";
        assert_eq!(numbers(text, Language::Braces), [1, 6, 8, 9, 12, 15]);
        assert_eq!(numbers("1 # 2\n$# 3 a#4", Language::Shell), [1, 3, 4]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_texts() {
        let text = "a\n/*\n*/ b \"\n\n\" c\nr\"\n\" d";
        let lines: Vec<usize> = tokens(text, Language::Braces)
            .iter()
            .filter(|at| matches!(at.token, Token::Word(_)))
            .map(|at| at.line)
            .collect();
        assert_eq!(lines, [1, 3, 5, 7]);
    }

    #[test]
    fn items_under_cfg_test_are_left_out() {
        let text = "1 #[cfg(test)] mod tests { 2 { 3 } } 4 #[cfg(test)] fn a(x: [u8; 5]) -> u8 { 6 } 7 #[cfg(test)] use b; 8 #[cfg(test)] mod far; 9";
        let (kept, modules) = without_tests(tokens(text, Language::Braces));
        let numbers: Vec<_> = kept.into_iter().map(|at| at.token).collect();
        assert_eq!(numbers, [1, 4, 7, 8, 9].map(Token::Number));
        assert_eq!(modules, ["far"]);
    }
}

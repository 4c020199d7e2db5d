//! Numbers, times and dates in a text, in a form in which equal values are equal however they are written.

use crate::languages::{self, has};
use crate::text::{is_unspaced, narrow};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaidValue {
    Number(String), // its digits, without separators and leading zeros
    /// Minutes since midnight or noon: many say `half past three` in the afternoon.
    Time(u32),
    Date(u32, u32), // smaller of day and month first: 4/5 may mean both
    Weekday(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundValue {
    pub value: SaidValue,
    pub text: String, // as it is written
}

impl SaidValue {
    /// Lists the forms in which another text may hold it: `15:40` as `3:40`, `1540`, and a full hour as its number.
    pub fn keys(&self) -> Vec<String> {
        match self {
            SaidValue::Number(digits) => vec![digits.clone()],
            SaidValue::Time(minutes) => {
                let (hour, minute) = (minutes / 60, minutes % 60);
                let hours = [hour, hour + 12].into_iter().chain((hour == 0).then_some(24));
                let written = hours.map(|hour| match minute {
                    0 => hour.to_string(),
                    _ => format!("{hour}{minute:02}"),
                });
                std::iter::once(format!("time {minutes}")).chain(written).collect()
            }
            SaidValue::Date(one, other) => vec![format!("date {one} {other}")],
            SaidValue::Weekday(day) => vec![format!("weekday {day}")],
        }
    }

    pub fn parts(&self) -> Vec<String> {
        match self {
            SaidValue::Number(_) | SaidValue::Weekday(_) => Vec::new(),
            SaidValue::Time(minutes) => vec![(minutes % 60).to_string(), (minutes / 60).to_string()],
            SaidValue::Date(one, other) => vec![one.to_string(), other.to_string()],
        }
    }
}

pub fn values(text: &str) -> Vec<FoundValue> {
    let chars: Vec<char> = text.chars().map(narrow).collect();
    let pieces = pieces(&chars);
    let mut found = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        let reader = Reader { pieces: &pieces, at };
        let Some((value, taken)) = reader.value() else {
            at += 1;
            continue;
        };
        let (start, end) = (pieces[at].start, pieces[at + taken - 1].end);
        let written: String = text.chars().skip(start).take(end - start).collect();
        found.push(FoundValue { value, text: written });
        at += taken;
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PieceKind {
    Digits(String),         // digits, with separators between them
    Word(String),           // in lower case
    Ideographs(u32, usize), // a number in ideographs, and the count of these
    Sign(char),
}

#[derive(Clone, Debug)]
struct Piece {
    what: PieceKind,
    start: usize, // in characters
    end: usize,
}

struct Reader<'a> {
    pieces: &'a [Piece],
    at: usize,
}

impl Reader<'_> {
    fn value(&self) -> Option<(SaidValue, usize)> {
        match self.what(0)? {
            PieceKind::Digits(digits) => self.digits(digits),
            PieceKind::Word(word) => self.word(word),
            PieceKind::Ideographs(number, length) => {
                let counted = matches!(
                    self.what(1),
                    Some(PieceKind::Sign('岁' | '歳' | '人' | '个' | '個' | '年' | '分' | '度'))
                );
                let plain = (counted || *length > 1).then(|| (SaidValue::Number(number.to_string()), 1));
                self.around(*number).or(plain)
            }
            PieceKind::Sign('周' | '週') => self.weekday_of_week(1),
            PieceKind::Sign('星' | '礼' | '禮') if matches!(self.what(1), Some(PieceKind::Sign('期' | '拜'))) => {
                self.weekday_of_week(2)
            }
            PieceKind::Sign(day) if self.what(1) == Some(&PieceKind::Sign('曜')) => {
                let days = ['月', '火', '水', '木', '金', '土', '日'];
                let day = days.iter().position(|known| known == day)?;
                Some((SaidValue::Weekday(day as u32 + 1), 2))
            }
            PieceKind::Sign(_) => None,
        }
    }

    /// Reads the day behind the Chinese word for a week.
    fn weekday_of_week(&self, ahead: usize) -> Option<(SaidValue, usize)> {
        match self.what(ahead)? {
            PieceKind::Ideographs(day @ 1..=6, 1) => Some((SaidValue::Weekday(*day), ahead + 1)),
            PieceKind::Sign('日' | '天') => Some((SaidValue::Weekday(7), ahead + 1)),
            _ => None,
        }
    }

    fn digits(&self, digits: &str) -> Option<(SaidValue, usize)> {
        let parts: Vec<u32> =
            digits.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
        let separator = digits.chars().find(|c| !c.is_ascii_digit());
        let plain = || {
            let all: String = digits.chars().filter(char::is_ascii_digit).collect();
            let short = all.trim_start_matches('0');
            Some((SaidValue::Number(if short.is_empty() { "0".to_owned() } else { short.to_owned() }), 1))
        };
        match (parts.as_slice(), separator) {
            ([hour @ 0..=24, minute @ 0..=59], Some(':')) => Some((time(*hour, *minute), 1 + self.half_of_day(1))),
            ([hour @ 0..=24, minute @ 0..=59], Some('.')) if self.is_hour(1) => Some((time(*hour, *minute), 2)),
            ([_, month @ 1..=12, day @ 1..=31], Some('-' | '/' | '.'))
                if digits.len() > 7 && digits.find(['-', '/', '.']) == Some(4) =>
            {
                Some((date(*day, *month), 1))
            }
            ([one @ 1..=31, other @ 1..=31, _], Some('-' | '/' | '.')) if one.min(other) <= &12 => {
                Some((date(*one, *other), 1))
            }
            ([one @ 1..=31, other @ 1..=31], Some('/')) if one.min(other) <= &12 => Some((date(*one, *other), 1)),
            ([one @ 1..=31, other @ 1..=12], Some('.')) if self.what(1) == Some(&PieceKind::Sign('.')) => {
                Some((date(*one, *other), 2))
            }
            ([number], None) => self.around(*number).or_else(plain),
            _ => plain(),
        }
    }

    fn word(&self, word: &str) -> Option<(SaidValue, usize)> {
        if let Some(day) = languages::weekday(word) {
            return Some((SaidValue::Weekday(day), 1));
        }
        if let Some(month) = languages::month(word) {
            let skipped = usize::from(matches!(self.what(1), Some(PieceKind::Word(the)) if the == "the"));
            if let Some(PieceKind::Digits(day)) = self.what(1 + skipped)
                && let Some(day @ 1..=31) = day.parse().ok()
            {
                let ordinal = matches!(self.what(2 + skipped), Some(PieceKind::Word(end)) if is_ordinal(end));
                return Some((date(day, month), 2 + skipped + usize::from(ordinal)));
            }
        }
        let number = languages::number(word)?;
        self.around(number).or_else(|| Some((SaidValue::Number(number.to_string()), 1)))
    }

    fn around(&self, number: u32) -> Option<(SaidValue, usize)> {
        match self.what(1) {
            Some(PieceKind::Sign('月')) if (1..=12).contains(&number) => {
                let day @ 1..=31 = self.number(2)? else { return None };
                let closed = matches!(self.what(3), Some(PieceKind::Sign('日' | '号' | '號')));
                return Some((date(day, number), if closed { 4 } else { 3 }));
            }
            Some(PieceKind::Sign('点' | '點' | '時' | '时' | '시')) if number <= 24 => {
                if self.what(2) == Some(&PieceKind::Sign('半')) {
                    return Some((time(number, 30), 3));
                }
                let minute =
                    self.number(2).filter(|minute| *minute < 60 && self.what(3) == Some(&PieceKind::Sign('分')));
                return Some((time(number, minute.unwrap_or(0)), if minute.is_some() { 4 } else { 2 }));
            }
            _ => {}
        }
        if number <= 24 && self.is_hour(1) {
            let minute = self.number(2).filter(|minute| *minute < 60);
            return Some((time(number, minute.unwrap_or(0)), if minute.is_some() { 3 } else { 2 }));
        }
        let half = self.half_of_day(1);
        if number <= 12 && half > 0 {
            return Some((time(number, 0), 1 + half));
        }
        // 14 March, 14. März, 14th of March, 14 de marzo
        let mut next = 1;
        while matches!(self.what(next), Some(PieceKind::Sign('.')))
            || matches!(self.what(next), Some(PieceKind::Word(word)) if is_ordinal(word) || is_of(word))
        {
            next += 1;
        }
        let Some(PieceKind::Word(word)) = self.what(next) else { return None };
        let month = languages::month(word)?;
        (next <= 3 && (1..=31).contains(&number)).then(|| (date(number, month), next + 1))
    }

    fn what(&self, ahead: usize) -> Option<&PieceKind> {
        self.pieces.get(self.at + ahead).map(|piece| &piece.what)
    }

    fn number(&self, ahead: usize) -> Option<u32> {
        match self.what(ahead)? {
            PieceKind::Digits(digits) => digits.parse().ok(),
            PieceKind::Ideographs(number, _) => Some(*number),
            _ => None,
        }
    }

    fn is_hour(&self, ahead: usize) -> bool {
        matches!(self.what(ahead), Some(PieceKind::Word(word)) if has(|language| &language.hours, word))
    }

    fn half_of_day(&self, ahead: usize) -> usize {
        let is = |ahead, words: &[&str]| matches!(self.what(ahead), Some(PieceKind::Word(word)) if words.contains(&word.as_str()));
        if is(ahead, &["am", "pm"]) {
            return 1;
        }
        let dotted =
            is(ahead, &["a", "p"]) && self.what(ahead + 1) == Some(&PieceKind::Sign('.')) && is(ahead + 2, &["m"]);
        if dotted { 3 } else { 0 }
    }
}

fn pieces(chars: &[char]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let start = at;
        let character = chars[at];
        at += 1;
        let what = if character.is_ascii_digit() {
            at = end_of_digits(chars, start);
            PieceKind::Digits(chars[start..at].iter().collect())
        } else if languages::ideograph(character).is_some() {
            at = end_of(chars, at, |character| languages::ideograph(character).is_some());
            PieceKind::Ideographs(ideographs(&chars[start..at]), at - start)
        } else if character.is_alphabetic() && !is_unspaced(character) && character != '시' {
            let is_inner = |character| matches!(character, '\'' | '-');
            at = end_of(chars, at, |character| {
                (character.is_alphabetic() && !is_unspaced(character)) || is_inner(character)
            });
            while is_inner(chars[at - 1]) {
                at -= 1;
            }
            PieceKind::Word(chars[start..at].iter().flat_map(|character| character.to_lowercase()).collect())
        } else if character.is_whitespace() {
            continue;
        } else {
            PieceKind::Sign(character)
        };
        pieces.push(Piece { what, start, end: at });
    }
    pieces
}

fn end_of(chars: &[char], from: usize, is_part: impl Fn(char) -> bool) -> usize {
    let length = chars[from..].iter().take_while(|character| is_part(**character)).count();
    from + length
}

/// Finds the end of a number. A separator is between two digits; a hyphen only in a date that starts with its year.
fn end_of_digits(chars: &[char], start: usize) -> usize {
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let mut at = start;
    while is_digit(at) {
        at += 1;
        let separates = match chars.get(at) {
            Some('.' | ',' | ':' | '/') => true,
            Some('-') => at - start == 4 || chars[start..at].contains(&'-'),
            _ => false,
        };
        if separates && is_digit(at + 1) {
            at += 1;
        }
    }
    at
}

fn ideographs(chars: &[char]) -> u32 {
    let (mut total, mut digits) = (0u32, 0u32);
    for value in chars.iter().filter_map(|character| languages::ideograph(*character)) {
        match value {
            10 | 100 | 1000 => {
                total = total.saturating_add(digits.max(1).saturating_mul(value));
                digits = 0;
            }
            10_000 => {
                total = total.saturating_add(digits).max(1).saturating_mul(value);
                digits = 0;
            }
            _ => digits = digits.saturating_mul(10).saturating_add(value),
        }
    }
    total.saturating_add(digits)
}

fn time(hour: u32, minute: u32) -> SaidValue {
    SaidValue::Time(hour % 12 * 60 + minute)
}

fn date(one: u32, other: u32) -> SaidValue {
    SaidValue::Date(one.min(other), one.max(other))
}

fn is_ordinal(word: &str) -> bool {
    has(|language| &language.ordinal_endings, word)
}

fn is_of(word: &str) -> bool {
    has(|language| &language.between_day_and_month, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<SaidValue> {
        values(text).into_iter().map(|found| found.value).collect()
    }

    #[test]
    fn the_same_moment_is_the_same_value() {
        for text in [
            "at 15:40",
            "3:40 pm",
            "3.40 Uhr",
            "15 Uhr 40",
            "15h40",
            "15:40 Uhr",
            "下午3点40分",
            "15時40分",
            "１５：４０",
        ] {
            assert_eq!(found(text).first(), Some(&SaidValue::Time(220)), "{text}: {:?}", found(text));
        }
        for text in ["7 am", "seven o'clock", "sieben Uhr", "7 p.m.", "七点", "19h"] {
            assert_eq!(found(text), [SaidValue::Time(420)], "{text}");
        }
        for text in [
            "March 14",
            "14 March",
            "14th of March",
            "14. März",
            "2026-03-14",
            "14.3.2026",
            "14.3.",
            "3/14",
            "3月14日",
            "三月十四日",
            "le 14 mars",
            "el 14 de marzo",
            "March the 14th",
        ] {
            assert_eq!(found(text), [SaidValue::Date(3, 14)], "{text}");
        }
        for text in ["on Tuesday", "am Dienstag", "mardi", "星期二", "周二", "火曜日", "во вторник"] {
            assert_eq!(found(text), [SaidValue::Weekday(2)], "{text}");
        }
    }

    #[test]
    fn numbers_have_no_separators() {
        let numbers = |text: &str| -> Vec<String> { found(text).iter().flat_map(SaidValue::keys).collect() };
        assert_eq!(numbers("1,500 and 1500 and 1.500"), ["1500", "1500", "1500"]);
        assert_eq!(numbers("007, seven, twenty-one, 二十一, 10-12"), ["7", "7", "21", "21", "10", "12"]);
        assert_eq!(numbers("三百五十度 no 一"), ["350"]);
        assert_eq!(values("call +49 170 1234567 now")[2].text, "1234567");
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        for text in ["", "I may march on", "und so weiter", "第一", "…", "- . : /"] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}

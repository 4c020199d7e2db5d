//! Messages to clients, which may repeat their words.

/// Makes one line that can be shown and spoken: without control characters, and with the begin and end of a long message.
pub fn printable(message: impl Into<String>) -> String {
    let message: String = message.into();
    if message.len() <= MOST_CHARS && !message.contains(char::is_control) {
        return message;
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    if message.chars().nth(MOST_CHARS).is_none() {
        return message.chars().map(plain).collect();
    }
    let end = message.char_indices().rev().nth(END_CHARS - 1).map_or("", |(at, _)| &message[at..]);
    let begin = message.chars().take(MOST_CHARS - END_CHARS - 3);
    begin.chain([' ', '…', ' ']).chain(end.chars()).map(plain).collect()
}

pub fn shown(word: &str) -> String {
    word.chars().take(SHOWN_CHARS).collect()
}

const SHOWN_CHARS: usize = 64;
const MOST_CHARS: usize = 400;
/// Characters of the end, where a message says what to do.
const END_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_message_is_one_line_that_ends() {
        assert_eq!(printable("there is no response x"), "there is no response x");
        assert_eq!(printable("there is no\u{0}response\nx"), "there is no response x");
        let long = printable(format!("there is no model {}: there are default, kitchen", "ü".repeat(100_000)));
        assert_eq!(long.chars().count(), 400);
        assert!(long.starts_with("there is no model ü") && long.ends_with("ü: there are default, kitchen"), "{long}");
    }
}

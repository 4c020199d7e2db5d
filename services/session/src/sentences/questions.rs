//! Questions at the end of a reply: then the client opens the microphone. Decided by marks alone, in any script.
//!
//! Home Assistant's rule is narrower: it opens the microphone if the text, without the space around it, ends in `?`,
//! `;` or `？`. `reply_end` brings the end of a reply into that form if a preset wants it.

use super::script::{is_closer, is_closing_quote, is_emoji, is_stop};

/// True if the text ends in a question to the user. Closing quotes, brackets and emoji may follow the mark. Words
/// quoted inside a sentence ask the user nothing.
pub fn ends_in_question(text: &str) -> bool {
    question_mark(text).is_some()
}

pub(super) fn question_mark(text: &str) -> Option<char> {
    let chars: Vec<char> = text.chars().collect();
    let run_end = chars.iter().rposition(|&c| !is_behind_mark(c))? + 1;
    let run_start = chars[..run_end].iter().rposition(|&c| !is_in_run(c)).map_or(0, |before| before + 1);
    let is_greek = chars[..run_start].iter().rev().find(|c| c.is_alphabetic()).is_some_and(|&c| is_greek(c));
    let mark = chars[run_start..run_end].iter().find_map(|&c| match c {
        '?' | '؟' | '⸮' | '⁇' | '⁈' | '⁉' | '‽' | '፧' => Some('?'),
        '？' => Some('？'),
        ';' if is_greek => Some(';'),
        GREEK_MARK => Some(';'),
        _ => None,
    })?;
    let quote = chars[run_end..].iter().copied().find(|&c| is_closing_quote(c));
    let is_quoted = quote.is_some_and(|quote| is_quoted_inside(&chars[..run_start], quote));
    (!is_quoted).then_some(mark)
}

/// U+037E. Greek is mostly written with the semicolon that looks the same.
const GREEK_MARK: char = '\u{037E}';

/// True for a question mark, or a character that may be among such marks.
pub(super) fn is_in_run(character: char) -> bool {
    matches!(
        character,
        '?' | '？' | '؟' | '⸮' | '⁇' | '⁈' | '⁉' | '‽' | '፧' | ';' | GREEK_MARK | '!' | '！' | '‼' | '…'
    )
}

/// True for characters behind a mark that no voice says.
pub(super) fn is_behind_mark(character: char) -> bool {
    character.is_whitespace() || is_closer(character) || is_emoji(character) || is_invisible(character)
}

fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

fn is_greek(character: char) -> bool {
    matches!(character, '\u{0370}'..='\u{03FF}' | '\u{1F00}'..='\u{1FFF}')
}

/// True if the closing quote belongs to a quote inside a sentence: 'She asked: "Why?"'. A sentence that is all in
/// quotes speaks to the user.
fn is_quoted_inside(before: &[char], closing: char) -> bool {
    let opens = |at: usize| {
        let is_pair = match closing {
            '”' => matches!(before[at], '“' | '„' | '”'),
            '“' => before[at] == '„',
            '’' => matches!(before[at], '‘' | '‚' | '’'),
            '»' => matches!(before[at], '«' | '»'),
            '«' => before[at] == '»',
            '›' => matches!(before[at], '‹' | '›'),
            '‹' => before[at] == '›',
            '」' => before[at] == '「',
            '』' => before[at] == '『',
            '》' => before[at] == '《',
            '〉' => before[at] == '〈',
            same => before[at] == same,
        };
        // The same sign also closes, or is an apostrophe.
        let may_close = before[at] == closing && at.checked_sub(1).is_some_and(|left| before[left].is_alphanumeric());
        is_pair && !may_close
    };
    let Some(at) = (0..before.len()).rev().find(|&at| opens(at)) else { return false };
    let space = before[..at].iter().rev().take_while(|c| c.is_whitespace());
    if space.clone().any(|&c| c == '\n') {
        return false;
    }
    let left = before[..at - space.count()].last();
    left.is_some_and(|&c| !is_stop(c) && !is_closer(c) && !is_emoji(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_known_by_its_mark_in_any_script() {
        let asks = [
            "Shall I turn it off?",
            "Which one? ",
            "Soll ich? 😊",
            "Is that right?)",
            "(Or shall I wait?)",
            "It is on (or is it?)",
            "**Which room?**",
            "\"Which room do you mean?\"",
            "Fine. \"Which room do you mean?\"",
            "好的。要我关灯吗？",
            "「明日でいいですか？」",
            "هل أطفئ الضوء؟",
            "هل أطفئ الضوء؟\u{200F}",
            "کیا میں بند کروں؟ ",
            "Να το σβήσω;",
            "Να το σβήσω\u{037E}",
            "Voulez-vous l’éteindre ?",
            "Vous avez dit « oui » ?",
            "Really?!",
            "What!?",
            "You mean it?…",
            "ማን ነው፧",
            "?",
            "Soll ich „Jazz“ spielen?",
            "First this. Then that.\nDone?",
        ];
        for text in asks {
            assert!(ends_in_question(text), "{text}");
        }
        let tells = [
            "",
            " ",
            "😊",
            "It is on.",
            "Is it late? It is.",
            "She asked: \"Why?\"",
            "She asked \"Why?\" 😊",
            "Sie fragte: „Warum?“",
            "Elle a dit « pourquoi ? »",
            "彼は「なぜ？」",
            "He said 'what?'",
            "First; second;",
            "It is on?.",
            "Done!",
            "Why not... ",
            "if (a) { b(); }",
        ];
        for text in tells {
            assert!(!ends_in_question(text), "{text}");
        }
    }
}

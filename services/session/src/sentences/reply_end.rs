//! The end of a reply in the form by which Home Assistant knows a question, made while the model writes.
//!
//! A question ends in its mark: text behind it that no voice says is dropped, and a mark that Home Assistant does not
//! know becomes one that it does. Under `WithoutQuestion`, a reply that has said something does not continue with a
//! question: from its second sentence on a sentence waits for its end, which costs no time if clients speak whole
//! sentences. A reply of questions alone stays, because silence would be worse.

use super::questions::{ends_in_question, is_behind_mark, is_in_run, question_mark};
use super::{Sentence, SentenceLimits, Sentences};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndRule {
    Marked,
    /// Drops the question, unless the reply only asks.
    WithoutQuestion,
}

#[derive(Clone, Debug)]
pub struct ReplyEnd {
    rule: EndRule,
    text: String,
    sentences: Sentences,
    whole: usize,
    /// End of the last complete sentence that is no question. `None` if there is none yet.
    statement_end: Option<usize>,
    /// Bytes of the text that left or are in `held`.
    passed: usize,
    said: String,
    /// Marks, and characters behind them that no voice says: possibly the end.
    held: String,
}

const WHOLE: SentenceLimits = SentenceLimits { first_clause_chars: usize::MAX, max_sentence_chars: usize::MAX };

impl ReplyEnd {
    pub fn new(rule: EndRule) -> ReplyEnd {
        ReplyEnd {
            rule,
            text: String::new(),
            sentences: Sentences::new(WHOLE),
            whole: 0,
            statement_end: None,
            passed: 0,
            said: String::new(),
            held: String::new(),
        }
    }

    /// Takes text. Returns the text that may leave, and whether it ends a sentence whatever follows.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.text.push_str(text);
        if self.rule == EndRule::Marked {
            return (self.let_go(self.text.len()), false);
        }
        let (before, mut sentences) = (self.statement_end, Vec::new());
        self.sentences.push(text, &mut sentences);
        self.judge(sentences);
        let Some(until) = self.statement_end else {
            // Questions before the first statement stay: what follows may answer them.
            let undecided = self.text.chars().rev().take(self.sentences.undecided()).map(char::len_utf8).sum::<usize>();
            return (self.let_go(self.text.len() - undecided), false);
        };
        let mut free = self.let_go(until);
        // A semicolon waits: it may be the reply's end.
        let ends_sentence = before != self.statement_end && !self.ends_in_semicolon();
        if ends_sentence {
            let held = std::mem::take(&mut self.held);
            self.said.push_str(&held);
            free.push_str(&held);
        }
        (free, ends_sentence)
    }

    pub fn end(mut self) -> String {
        if self.rule == EndRule::WithoutQuestion {
            let mut sentences = Vec::new();
            self.sentences.finish(&mut sentences);
            self.judge(sentences);
        }
        let mut rest = self.let_go(self.statement_end.unwrap_or(self.text.len()));
        match question_mark(&format!("{}{}", self.said, self.held)) {
            Some(mark) => rest.push(mark),
            // Home Assistant would take it for a Greek question.
            None if self.ends_in_semicolon() => rest.push('.'),
            None => rest.push_str(&self.held),
        }
        rest
    }

    /// Returns the rest as the model wrote it, for a reply that continues or was cut off.
    pub fn unchanged(mut self) -> String {
        let rest = self.let_go(self.text.len());
        rest + &self.held
    }

    fn ends_in_semicolon(&self) -> bool {
        self.held.trim_end_matches(is_space).ends_with(';')
    }

    fn judge(&mut self, sentences: Vec<Sentence>) {
        for Sentence { text, .. } in sentences {
            self.whole += text.len();
            if text.contains(char::is_alphanumeric) && !ends_in_question(&text) {
                self.statement_end = Some(self.whole);
            }
        }
    }

    fn let_go(&mut self, until: usize) -> String {
        let from = self.passed;
        self.passed = until.max(from);
        let mut free = String::new();
        for character in self.text.get(from..self.passed).unwrap_or_default().chars() {
            if is_in_run(character) || (!self.held.is_empty() && is_behind_mark(character)) {
                self.held.push(character);
            } else {
                free.push_str(&std::mem::take(&mut self.held));
                free.push(character);
            }
        }
        self.said.push_str(&free);
        free
    }
}

fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1C}'..='\u{1F}')
}

#[cfg(test)]
mod tests;

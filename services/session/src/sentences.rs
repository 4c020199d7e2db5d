//! Sentences fit to speak, cut from a reply while the model writes it.
//!
//! The end of a sentence depends on the text alone, never on the pieces it arrives in: the cutter judges every
//! character once, in order. A cut waits for the first character behind it (the first of a word, if an abbreviation
//! leaves doubt), so white space between two sentences belongs to the one before it. Model tokens carry their space in
//! front, so that wait costs nothing.
//!
//! Offsets count Unicode scalar values (`char`s), the unit of `text_end` on the wire. Sentences tile the text: each
//! starts where the one before ended, and their texts in a row are the reply.

mod abbreviations;
mod cutter;
mod questions;
mod reply_end;
mod rules;
pub(crate) mod script;
#[cfg(test)]
mod tests;

pub use cutter::Cutter;
pub use questions::ends_in_question;
pub use reply_end::EndRule;
use rules::CutVerdict;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentenceLimits {
    /// Letters after which the *first* sentence may end at a comma, dash or colon, so that speech starts sooner.
    pub first_clause_chars: usize,
    pub max_sentence_chars: usize,
}

/// One sentence of a reply. `text` is `reply[text_start..text_end]`, counted in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    pub index: usize,
    pub text: String,
    pub text_start: usize,
    pub text_end: usize,
}

#[derive(Clone, Debug)]
pub struct Sentences {
    limits: SentenceLimits,
    pending: Vec<char>,
    weight: usize,
    scan: usize,
    start: usize,
    count: usize,
}

impl Sentences {
    pub fn new(limits: SentenceLimits) -> Sentences {
        Sentences { limits, pending: Vec::new(), weight: 0, scan: 0, start: 0, count: 0 }
    }

    pub fn push(&mut self, piece: &str, out: &mut Vec<Sentence>) {
        for character in piece.chars() {
            self.pending.push(character);
            self.weight += script::weight(character);
            self.judge(false, out);
            if self.weight >= self.limits.max_sentence_chars {
                let end = rules::forced_cut(&self.pending);
                self.cut(end, out);
            }
        }
    }

    fn undecided(&self) -> usize {
        self.pending.len() - self.scan
    }

    /// Ends the text, or its sentence: the rest becomes the last sentences.
    pub fn finish(&mut self, out: &mut Vec<Sentence>) {
        self.judge(true, out);
        if !self.pending.is_empty() {
            self.cut(self.pending.len(), out);
        }
    }

    fn judge(&mut self, finished: bool, out: &mut Vec<Sentence>) {
        while self.scan < self.pending.len() {
            let first_clause_chars = (self.count == 0).then_some(self.limits.first_clause_chars);
            let position = rules::JudgedCharacter {
                chars: &self.pending,
                at: self.scan,
                finished,
                first_clause_chars,
                clause_chars: self.limits.first_clause_chars,
            };
            match rules::judge(&position) {
                CutVerdict::Skip(to) => self.scan = to,
                CutVerdict::Wait => return,
                CutVerdict::Cut(end) => self.cut(end, out),
            }
        }
    }

    fn cut(&mut self, end: usize, out: &mut Vec<Sentence>) {
        let text: String = self.pending.drain(..end).collect();
        let text_end = self.start + end;
        out.push(Sentence { index: self.count, text, text_start: self.start, text_end });
        self.weight = self.pending.iter().map(|&character| script::weight(character)).sum();
        self.start = text_end;
        self.count += 1;
        self.scan = 0;
    }
}

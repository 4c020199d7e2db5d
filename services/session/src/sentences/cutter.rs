//! Sentences in a generation's deltas, and the end of a reply by its preset's rule.

use super::reply_end::{EndRule, ReplyEnd};
use super::{Sentence, SentenceLimits, Sentences};
use crate::vocabulary::{Delta, Finish, TokenLogprob};

/// The cutter for one generation. A function call ends a message; the text behind it is a new message.
#[derive(Clone, Debug)]
pub struct Cutter {
    limits: SentenceLimits,
    sentences: Sentences,
    has_begun: bool,
    /// Tokens of dropped or waiting text; the next delta counts them.
    dropped_tokens: u64,
    rule: Option<EndRule>,
    end: Option<ReplyEnd>,
}

impl Cutter {
    pub fn new(limits: SentenceLimits) -> Cutter {
        Cutter::with_rule(limits, None)
    }

    pub fn with_rule(limits: SentenceLimits, rule: Option<EndRule>) -> Cutter {
        let (sentences, end) = (Sentences::new(limits), rule.map(ReplyEnd::new));
        Cutter { limits, sentences, has_begun: false, dropped_tokens: 0, rule, end }
    }

    pub fn in_message(self) -> Cutter {
        Cutter { has_begun: true, ..self }
    }

    /// Appends the delta to `out`, with its sentences. Drops white space before the first word of a message. Before a
    /// call, and at the end of a whole reply, a delta without text carries the remaining sentences.
    pub fn cut(&mut self, delta: Delta, out: &mut Vec<Delta>) {
        let delta = match delta {
            Delta::Text { text, tokens, logprobs, .. } => {
                out.extend(self.text(text, tokens, logprobs));
                return;
            }
            Delta::CallArguments { json, tokens } => {
                Delta::CallArguments { json, tokens: tokens + std::mem::take(&mut self.dropped_tokens) }
            }
            Delta::CallStarted { .. }
            | Delta::Done { finish: Finish::Stop | Finish::ToolCalls | Finish::Length, .. } => {
                let is_whole = matches!(delta, Delta::Done { finish: Finish::Stop, .. });
                self.end_message(is_whole, out);
                delta
            }
            Delta::Done { finish: Finish::Held, .. } => {
                // Waiting text leaves unchanged: the cutter of the resumed reply looks at it again.
                let text = self.end.take().map(ReplyEnd::unchanged).unwrap_or_default();
                let tokens = std::mem::take(&mut self.dropped_tokens);
                if !text.is_empty() || tokens > 0 {
                    out.push(Delta::text(text, tokens));
                }
                delta
            }
            other => other,
        };
        out.push(delta);
    }

    fn text(&mut self, mut text: String, tokens: u64, mut logprobs: Vec<TokenLogprob>) -> Option<Delta> {
        if !self.has_begun {
            text.drain(..text.len() - text.trim_start().len());
            let space = logprobs.iter().take_while(|token| token.bytes.trim_ascii().is_empty()).count();
            logprobs.drain(..space);
        }
        self.has_begun |= !text.is_empty();
        let mut ends_sentence = false;
        if let Some(end) = &mut self.end {
            (text, ends_sentence) = end.push(&text);
        }
        if text.is_empty() && !ends_sentence {
            self.dropped_tokens += tokens;
            return None;
        }
        let mut sentences = Vec::new();
        self.sentences.push(&text, &mut sentences);
        if ends_sentence {
            self.sentences.finish(&mut sentences);
        }
        sentences.retain(is_spoken);
        Some(Delta::Text { text, tokens: tokens + std::mem::take(&mut self.dropped_tokens), sentences, logprobs })
    }

    fn end_message(&mut self, is_whole: bool, out: &mut Vec<Delta>) {
        let end = std::mem::replace(&mut self.end, self.rule.map(ReplyEnd::new));
        let text = end.map(|end| if is_whole { end.end() } else { end.unchanged() }).unwrap_or_default();
        let mut sentences = Vec::new();
        let mut last = std::mem::replace(&mut self.sentences, Sentences::new(self.limits));
        last.push(&text, &mut sentences);
        last.finish(&mut sentences);
        sentences.retain(is_spoken);
        self.has_begun = false;
        if !sentences.is_empty() || !text.is_empty() {
            out.push(Delta::Text { text, tokens: 0, sentences, logprobs: Vec::new() });
        }
    }
}

fn is_spoken(sentence: &Sentence) -> bool {
    !sentence.text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };

    fn cut(deltas: impl IntoIterator<Item = Delta>) -> Vec<Delta> {
        let mut cutter = Cutter::new(LIMITS);
        let mut out = Vec::new();
        for delta in deltas {
            cutter.cut(delta, &mut out);
        }
        out
    }

    fn done(finish: Finish) -> Delta {
        Delta::Done { finish, usage: None, report: None }
    }

    fn call() -> Delta {
        Delta::CallStarted { name: "light".into(), call_id: None }
    }

    type CutSentence = (usize, String, usize, usize);

    fn told(deltas: &[Delta]) -> Vec<(String, u64, Vec<CutSentence>)> {
        let of = |sentence: &Sentence| (sentence.index, sentence.text.clone(), sentence.text_start, sentence.text_end);
        let texts = deltas.iter().filter_map(|delta| match delta {
            Delta::Text { text, tokens, sentences, .. } => {
                Some((text.clone(), *tokens, sentences.iter().map(of).collect()))
            }
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn a_sentence_comes_with_the_text_that_completes_it_and_the_rest_at_the_end() {
        let deltas = ["\n", " Is", " it late?", " No", "."].map(|text| Delta::text(text, 1));
        let told = told(&cut(deltas.into_iter().chain([done(Finish::Stop)])));
        let first = (0, "Is it late? ".to_owned(), 0, 12);
        let rest = (1, "No.".to_owned(), 12, 15);
        let expected: [(&str, u64, Vec<_>); 5] = [
            ("Is", 2, vec![]),
            (" it late?", 1, vec![]),
            (" No", 1, vec![first]),
            (".", 1, vec![]),
            ("", 0, vec![rest]),
        ];
        assert_eq!(told, expected.map(|(text, tokens, sentences)| (text.to_owned(), tokens, sentences)));
    }

    #[test]
    fn a_call_ends_a_message_and_the_next_begins_anew() {
        let arguments = Delta::CallArguments { json: "{}".into(), tokens: 1 };
        let deltas = cut([
            Delta::text("One moment", 1),
            call(),
            arguments.clone(),
            Delta::text("\n\n", 1),
            call(),
            arguments,
            Delta::text("Done", 1),
            done(Finish::Length),
        ]);
        assert_eq!(deltas[4], call(), "white space is no message");
        assert_eq!(deltas[5], Delta::CallArguments { json: "{}".into(), tokens: 2 });
        let rests: Vec<_> = told(&deltas).into_iter().filter(|(text, ..)| text.is_empty()).collect();
        let of = |text: &str| (String::new(), 0, vec![(0, text.to_owned(), 0, text.len())]);
        assert_eq!(rests, [of("One moment"), of("Done")]);
    }

    #[test]
    fn what_was_broken_off_has_no_last_sentence() {
        assert_eq!(cut([Delta::text("Half a", 1), done(Finish::Cancelled)]).len(), 2);
        assert_eq!(cut([Delta::text("Done. ", 1), done(Finish::Stop)]).len(), 3);
        assert_eq!(cut([Delta::text(" \n", 1), done(Finish::Stop)]), [done(Finish::Stop)]);
    }

    #[test]
    fn log_probabilities_of_dropped_white_space_are_dropped() {
        let token = |bytes: &[u8]| TokenLogprob { bytes: bytes.to_vec(), logprob: -1.0, top: Vec::new() };
        let logprobs = vec![token(b"\n"), token(b" Yes"), token(b" ")];
        let text = Delta::Text { text: "\n Yes ".into(), tokens: 3, sentences: Vec::new(), logprobs };
        let [Delta::Text { text, logprobs, .. }] = &cut([text])[..] else { panic!("one delta") };
        assert_eq!((text.as_str(), logprobs.as_slice()), ("Yes ", &[token(b" Yes"), token(b" ")][..]));
    }
}

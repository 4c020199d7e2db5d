//! Encodes a rendered prompt. Text that a user typed never becomes a control token. Marks are the positions at which a
//! later prompt may branch off.

use crate::template::Rendered;
use crate::tokenizer::{Segment, Tokenizer};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedPrompt {
    pub tokens: Vec<u32>,
    /// Token positions, ascending: after the system prompt, after each message (after its `<|im_end|>\n`), and, if the
    /// prompt ends in an open turn, after that turn's `<|im_start|>assistant\n`: the same turn has the same tokens up
    /// to there when it is history.
    pub marks: Vec<usize>,
}

pub fn encode_prompt(tokenizer: &Tokenizer, rendered: &Rendered) -> EncodedPrompt {
    let message_start = tokenizer.id_of("<|im_start|>");
    let message_end = tokenizer.id_of("<|im_end|>");
    let mut prompt = EncodedPrompt { tokens: Vec::with_capacity(rendered.text.len() / 3), marks: Vec::new() };
    let mut previous = None;
    let mut open_turn = None;
    tokenizer.segments(&rendered.text, &rendered.inert, |segment| {
        if previous.is_some() && previous == message_end {
            // The line break behind the end of a message belongs to the message; any other text begins the next one.
            if segment != Segment::Plain("\n") {
                prompt.marks.push(prompt.tokens.len());
            }
            open_turn = None;
        }
        tokenizer.encode_segment(segment, &mut prompt.tokens);
        match segment {
            Segment::Control(id) => previous = Some(id),
            Segment::Plain(text) => {
                if previous.is_some() && previous == message_end && text == "\n" {
                    prompt.marks.push(prompt.tokens.len());
                }
                if previous.is_some() && previous == message_start {
                    open_turn = text.ends_with('\n').then_some(prompt.tokens.len());
                }
                previous = None;
            }
        }
    });
    if previous.is_some() && previous == message_end {
        prompt.marks.push(prompt.tokens.len());
        open_turn = None;
    }
    prompt.marks.extend(open_turn);
    prompt
}

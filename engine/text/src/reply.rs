//! Splits generated text into reasoning, content and tool calls while it comes. A tag may be cut anywhere.
//!
//! Text is passed on as soon as it cannot be part of a tag. A call is held until it is complete, because an incomplete
//! or malformed one is text. White space at the edges of reasoning and content, and before a call, belongs to the
//! format: the parser drops it, as the template drops it from the history.

mod call;
mod typed;

use crate::ToolSchema;
use typed::ToolTypes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPart {
    Reasoning(String),
    Content(String),
    /// Beginning of a call; calls of a reply are numbered from 0.
    Call {
        index: usize,
        name: String,
    },
    /// A part of the JSON object with the call's arguments. All parts of a call together are the whole object.
    Arguments {
        index: usize,
        json: String,
    },
}

#[derive(Debug)]
pub struct ReplyParser {
    types: ToolTypes,
    state: ParserState,
    /// Text that is held: the start of a tag, or a call that is not complete.
    pending: String,
    reasoning: Trimmed,
    content: Trimmed,
    calls: usize,
    /// True after content before the last call: content after the call begins with an empty line.
    break_before_content: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Reasoning,
    Content,
    Call { within_reasoning: bool },
}

const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

impl ReplyParser {
    /// Starts a parser. `in_reasoning`: the prompt ended inside an open `<think>`. `tools` give the arguments their
    /// types.
    pub fn new(in_reasoning: bool, tools: &[ToolSchema]) -> Self {
        Self {
            types: ToolTypes::new(tools),
            state: if in_reasoning { ParserState::Reasoning } else { ParserState::Content },
            pending: String::new(),
            reasoning: Trimmed::default(),
            content: Trimmed::default(),
            calls: 0,
            break_before_content: false,
        }
    }

    pub fn push(&mut self, text: &str, pieces: &mut Vec<ReplyPart>) {
        let searched = self.pending.len();
        self.pending.push_str(text);
        let mut from = searched;
        while self.advance(from, pieces) {
            from = 0;
        }
    }

    /// Ends the reply: held text is passed on as text.
    pub fn finish(&mut self, pieces: &mut Vec<ReplyPart>) {
        let rest = std::mem::take(&mut self.pending);
        self.say(self.is_reasoning(), &rest, pieces);
    }

    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, ParserState::Reasoning | ParserState::Call { within_reasoning: true })
    }

    /// Takes one step; false if it needs more text. The first `searched` bytes of a held call are known to hold no end.
    fn advance(&mut self, searched: usize, pieces: &mut Vec<ReplyPart>) -> bool {
        match self.state {
            ParserState::Reasoning => match first_of(&self.pending, &[THINK_END, CALL]) {
                Some((at, tag)) => {
                    let before: String = self.pending.drain(..at).collect();
                    self.say(true, &before, pieces);
                    if tag == THINK_END {
                        self.pending.drain(..tag.len());
                        self.state = ParserState::Content;
                    } else {
                        self.state = ParserState::Call { within_reasoning: true };
                    }
                    true
                }
                None => {
                    let text = self.take_what_is_no_tag(&[THINK_END, CALL]);
                    self.say(true, &text, pieces);
                    false
                }
            },
            ParserState::Content => {
                // A model may open its reasoning itself, but only at the very start of a reply.
                let may_think = !self.content.begun && !self.reasoning.begun && self.calls == 0;
                if may_think {
                    let text = self.pending.trim_start();
                    if let Some(after) = text.strip_prefix(THINK) {
                        self.pending = after.to_string();
                        self.state = ParserState::Reasoning;
                        return true;
                    }
                    if THINK.starts_with(text) {
                        return false;
                    }
                }
                match self.pending.find(CALL) {
                    Some(at) => {
                        let before: String = self.pending.drain(..at).collect();
                        self.say(false, &before, pieces);
                        self.state = ParserState::Call { within_reasoning: false };
                        true
                    }
                    None => {
                        let text = self.take_what_is_no_tag(&[CALL]);
                        self.say(false, &text, pieces);
                        false
                    }
                }
            }
            ParserState::Call { within_reasoning } => {
                // An end tag that was cut may begin a little before the new text.
                let mut from = searched.saturating_sub(CALL_END.len());
                while !self.pending.is_char_boundary(from) {
                    from -= 1;
                }
                let ends: &[&str] = if within_reasoning { &[CALL_END, THINK_END] } else { &[CALL_END] };
                let Some((at, tag)) = first_of(&self.pending[from..], ends) else { return false };
                self.state = if within_reasoning { ParserState::Reasoning } else { ParserState::Content };
                if tag == THINK_END {
                    let mention: String = self.pending.drain(..from + at).collect();
                    self.say(true, &mention, pieces);
                } else {
                    let block: String = self.pending.drain(..from + at + tag.len()).collect();
                    self.end_of_call(&block, within_reasoning, pieces);
                }
                true
            }
        }
    }

    /// Passes on a block from `<tool_call>` to `</tool_call>`.
    fn end_of_call(&mut self, block: &str, within_reasoning: bool, pieces: &mut Vec<ReplyPart>) {
        // If the whole block is no call, the part from its last `<tool_call>` may be one: the tags before it are then
        // text.
        let innermost = block.rfind(CALL).unwrap_or(0);
        let parse = |from: usize| {
            call::parse(&block[from + CALL.len()..block.len() - CALL_END.len()]).map(|calls| (from, calls))
        };
        let Some((from, calls)) = parse(0).or_else(|| parse(innermost)) else {
            return self.say(within_reasoning, block, pieces);
        };
        self.say(within_reasoning, &block[..from], pieces);
        if within_reasoning {
            self.reasoning.space.clear();
        } else {
            self.content.space.clear();
            self.break_before_content = self.content.begun;
        }
        for call in calls {
            let index = self.calls;
            self.calls += 1;
            pieces.push(ReplyPart::Call { index, name: call.name.clone() });
            let arguments = self.types.arguments(&call.name, &call.parameters);
            pieces.extend(arguments.into_iter().map(|json| ReplyPart::Arguments { index, json }));
        }
    }

    fn say(&mut self, is_reasoning: bool, text: &str, pieces: &mut Vec<ReplyPart>) {
        if is_reasoning {
            let text = self.reasoning.push(text);
            pieces.extend((!text.is_empty()).then_some(ReplyPart::Reasoning(text)));
            return;
        }
        let text = if self.break_before_content { text.trim_start() } else { text };
        let mut text = self.content.push(text);
        if !text.is_empty() {
            if std::mem::take(&mut self.break_before_content) {
                text.insert_str(0, "\n\n");
            }
            pieces.push(ReplyPart::Content(text));
        }
    }

    fn take_what_is_no_tag(&mut self, tags: &[&str]) -> String {
        let longest = tags.iter().map(|tag| tag.len()).max().unwrap_or(0);
        let starts = self.pending.char_indices().map(|(at, _)| at).filter(|at| self.pending.len() - at < longest);
        let mut begins = starts.filter(|at| tags.iter().any(|tag| tag.starts_with(&self.pending[*at..])));
        let keep_from = begins.next().unwrap_or(self.pending.len());
        self.pending.drain(..keep_from).collect()
    }
}

#[derive(Debug, Default)]
struct Trimmed {
    begun: bool,
    space: String,
}

impl Trimmed {
    fn push(&mut self, text: &str) -> String {
        let text = if self.begun { text } else { text.trim_start() };
        let body = text.trim_end();
        if body.is_empty() {
            self.space.push_str(text);
            return String::new();
        }
        self.begun = true;
        let mut out = std::mem::take(&mut self.space);
        out.push_str(body);
        self.space.push_str(&text[body.len()..]);
        out
    }
}

fn first_of<'t>(text: &str, tags: &[&'t str]) -> Option<(usize, &'t str)> {
    tags.iter().filter_map(|tag| text.find(tag).map(|at| (at, *tag))).min()
}

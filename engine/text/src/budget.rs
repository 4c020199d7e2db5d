//! Limit on a model's thinking. The engine asks before each token whether one is forced, and reports each token that
//! was chosen. When the budget is spent, or a caller ends the thinking, the closing tokens are forced.

use crate::Tokenizer;

/// Text that closes the thinking: a line end, the tag, and the blank line that the template has.
pub const CLOSING: &str = "\n</think>\n\n";
const OPEN: &[u8] = b"<think>";
const CLOSE: &[u8] = b"</think>";

#[derive(Debug, Clone)]
pub struct ThinkingBudget {
    budget_tokens: Option<u32>,
    spent_tokens: u32,
    state: ThinkingState,
    closing: Vec<u32>,
    closing_after_line_end: Vec<u32>,
    /// The last bytes, for a tag that comes in several tokens.
    tail: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ThinkingState {
    /// Only white space so far: the model may still open its thinking itself.
    Before,
    Thinking,
    Closing {
        tokens: Vec<u32>,
        done: usize,
    },
    Over,
}

impl ThinkingBudget {
    /// Starts a budget. `in_thinking`: the prompt ends inside an open `<think>` (`opens_thinking`).
    pub fn new(tokenizer: &Tokenizer, in_thinking: bool, budget_tokens: Option<u32>) -> Self {
        let mut budget = Self {
            budget_tokens,
            spent_tokens: 0,
            state: if in_thinking { ThinkingState::Thinking } else { ThinkingState::Before },
            closing: tokenizer.encode(CLOSING),
            closing_after_line_end: tokenizer.encode(CLOSING.trim_start()),
            tail: Vec::new(),
        };
        budget.close_when_spent();
        budget
    }

    /// Ends the thinking now. A model that does not think stays untouched.
    pub fn stop(&mut self) {
        self.budget_tokens = Some(0);
        self.close_when_spent();
    }

    pub fn forced(&self) -> Option<u32> {
        match &self.state {
            ThinkingState::Closing { tokens, done } => tokens.get(*done).copied(),
            _ => None,
        }
    }

    /// Takes every token of the reply, forced ones too, as its bytes.
    pub fn accept(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        match &mut self.state {
            ThinkingState::Before => {
                let text = self.tail.trim_ascii();
                if text.starts_with(OPEN) {
                    self.state = ThinkingState::Thinking;
                    self.close_when_spent();
                } else if !OPEN.starts_with(text) {
                    self.state = ThinkingState::Over;
                }
            }
            ThinkingState::Thinking => {
                if self.tail.windows(CLOSE.len()).any(|window| window == CLOSE) {
                    self.state = ThinkingState::Over;
                } else {
                    self.spent_tokens += 1;
                    self.close_when_spent();
                }
            }
            ThinkingState::Closing { tokens, done } => {
                *done += 1;
                if *done >= tokens.len() {
                    self.state = ThinkingState::Over;
                }
            }
            ThinkingState::Over => {}
        }
        if self.state != ThinkingState::Before {
            let excess = self.tail.len().saturating_sub(CLOSE.len() - 1);
            self.tail.drain(..excess);
        }
    }

    fn close_when_spent(&mut self) {
        if self.state == ThinkingState::Thinking && self.budget_tokens.is_some_and(|budget| self.spent_tokens >= budget)
        {
            // Without any token of thinking the result is what the template writes when thinking is off.
            let at_line_end = self.spent_tokens > 0 && self.tail.last() == Some(&b'\n');
            let tokens = if at_line_end { &self.closing_after_line_end } else { &self.closing };
            self.state = ThinkingState::Closing { tokens: tokens.clone(), done: 0 };
        }
    }
}

/// Checks for an open `<think>` at the end of a rendered prompt: the reply then begins with reasoning.
pub fn opens_thinking(prompt: &str) -> bool {
    prompt.trim_end().ends_with("<think>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-wide/tokenizer.json");
        Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap()
    });

    fn generate(in_thinking: bool, budget_tokens: Option<u32>, words: &str) -> (String, ThinkingBudget) {
        let mut budget = ThinkingBudget::new(&TOKENIZER, in_thinking, budget_tokens);
        let mut said = Vec::new();
        let mut wanted = TOKENIZER.encode(words).into_iter();
        while let Some(token) = budget.forced().or_else(|| wanted.next()) {
            budget.accept(TOKENIZER.token_bytes(token));
            said.push(token);
        }
        (TOKENIZER.decode(&said), budget)
    }

    fn is_thinking(budget: &ThinkingBudget) -> bool {
        matches!(budget.state, ThinkingState::Thinking | ThinkingState::Closing { .. })
    }

    #[test]
    fn thinking_that_ends_in_time_is_left_alone() {
        let text = "It is late.\n</think>\n\nGood night.";
        for budget_tokens in [None, Some(100)] {
            let (said, budget) = generate(true, budget_tokens, text);
            assert_eq!(said, text);
            assert_eq!(budget.spent_tokens, TOKENIZER.encode("It is late.\n").len() as u32);
            assert!(!is_thinking(&budget));
        }
    }

    #[test]
    fn a_spent_budget_closes_the_thinking_once() {
        let thought = "one two three four five six";
        for spent in 1..TOKENIZER.encode(thought).len() as u32 {
            let (said, budget) = generate(true, Some(spent), thought);
            let (before, after) = said.split_once(CLOSING).unwrap();
            assert_eq!(TOKENIZER.encode(before).len() as u32, spent);
            assert_eq!(format!("{before}{after}"), thought, "and the model goes on after it");
            assert_eq!(budget.spent_tokens, spent);
            assert!(!is_thinking(&budget));
        }
    }

    #[test]
    fn thinking_ends_when_it_is_stopped() {
        let thought = TOKENIZER.encode("one two three four five six");
        for after in 0..thought.len() {
            let mut budget = ThinkingBudget::new(&TOKENIZER, true, None);
            let mut said: Vec<u32> = thought[..after].to_vec();
            said.iter().for_each(|token| budget.accept(TOKENIZER.token_bytes(*token)));
            assert_eq!(budget.forced(), None);
            budget.stop();
            while let Some(token) = budget.forced() {
                budget.accept(TOKENIZER.token_bytes(token));
                said.push(token);
                // A second call changes nothing.
                budget.stop();
            }
            assert_eq!(TOKENIZER.decode(&said), TOKENIZER.decode(&thought[..after]) + CLOSING);
            assert_eq!(budget.state, ThinkingState::Over);
        }
        // A reply without thinking has nothing to close.
        for said in ["Hello", "<think>Hm.</think>Hello"] {
            let mut budget = ThinkingBudget::new(&TOKENIZER, false, None);
            TOKENIZER.encode(said).iter().for_each(|token| budget.accept(TOKENIZER.token_bytes(*token)));
            budget.stop();
            assert_eq!(budget.forced(), None, "{said}");
        }
        // A model that opens its thinking after the stop is closed at once.
        let mut budget = ThinkingBudget::new(&TOKENIZER, false, None);
        budget.stop();
        TOKENIZER.encode("<think>").iter().for_each(|token| budget.accept(TOKENIZER.token_bytes(*token)));
        assert!(budget.forced().is_some());
    }

    #[test]
    fn a_line_end_is_not_doubled_and_no_budget_is_thinking_off() {
        let line = TOKENIZER.encode("late.\n").len() as u32;
        assert_eq!(generate(true, Some(line), "late.\nHm").0, "late.\n</think>\n\nHm");
        assert_eq!(generate(true, Some(0), "Hello").0, "\n</think>\n\nHello");
    }

    #[test]
    fn thinking_that_the_model_opens_itself_is_counted() {
        let (said, budget) = generate(false, Some(2), "<think>one two three");
        assert!(said.starts_with("<think>") && said.contains(CLOSING), "{said}");
        assert_eq!(budget.spent_tokens, 2);
        let (said, budget) = generate(false, Some(2), "one <think> two three four");
        assert_eq!(said, "one <think> two three four");
        assert!(!is_thinking(&budget));
    }

    #[test]
    fn a_tag_in_several_tokens_is_seen() {
        let mut budget = ThinkingBudget::new(&TOKENIZER, true, None);
        for piece in ["hm", " </", "thi", "nk", ">"] {
            assert!(is_thinking(&budget));
            budget.accept(piece.as_bytes());
        }
        assert!(!is_thinking(&budget));
    }

    #[test]
    fn a_prompt_tells_how_the_reply_begins() {
        assert!(opens_thinking("<|im_start|>assistant\n<think>\n"));
        assert!(!opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    }
}

//! Length of a prompt, and the part of each message.

use session::{Message, MessageRole};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub tokens: u64,
    /// True for the model's own tokenizer. Otherwise `margin_tokens` are in `tokens`.
    pub exact: bool,
    pub margin_tokens: u64,
}

impl Counted {
    pub fn exactly(tokens: u64) -> Counted {
        Counted { tokens, exact: true, margin_tokens: 0 }
    }

    pub fn part(self, tokens: u64) -> Counted {
        let margin = u128::from(self.margin_tokens) * u128::from(tokens) / u128::from(self.tokens.max(1));
        Counted { tokens, exact: self.exact, margin_tokens: u64::try_from(margin).unwrap_or(u64::MAX) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub total: Counted,
    /// Tokens of each message with the marks around it. The total also has the rest: tools, the opening of the reply.
    pub messages: Vec<u64>,
}

impl Measured {
    /// Measures from the ends of a prompt's rendered blocks. Tool results in a row share a block. If the template's
    /// blocks are not the messages, their bytes decide.
    pub fn from_marks(total: Counted, marks: &[usize], messages: &[Message]) -> Measured {
        let groups = groups(messages);
        // The opening of the reply follows the last message.
        let ends = marks.split_last().map_or(&[][..], |(_, ends)| ends);
        // Tools without a system message make one.
        let Some(before) = ends.len().checked_sub(groups.len()).filter(|more| *more <= 1) else {
            return Measured::from_weights(total, &messages.iter().map(bytes).collect::<Vec<_>>());
        };
        let mut begin = before.checked_sub(1).map_or(0, |at| ends[at]);
        let mut tokens = Vec::with_capacity(messages.len());
        for (group, end) in groups.iter().zip(&ends[before..]) {
            let weights: Vec<u64> = messages[group.clone()].iter().map(bytes).collect();
            spread(end.saturating_sub(begin) as u64, &weights, &mut tokens);
            begin = *end;
        }
        Measured { total, messages: tokens }
    }

    pub fn from_weights(total: Counted, weights: &[u64]) -> Measured {
        let mut messages = Vec::with_capacity(weights.len());
        spread(total.tokens, weights, &mut messages);
        Measured { total, messages }
    }
}

fn groups(messages: &[Message]) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for at in 0..messages.len() {
        let is_result = |at: usize| messages[at].role == MessageRole::Tool;
        match groups.last_mut() {
            Some(last) if is_result(at) && is_result(at - 1) => last.end = at + 1,
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

fn bytes(message: &Message) -> u64 {
    message.text_bytes() as u64 + 1
}

fn spread(whole: u64, weights: &[u64], shares: &mut Vec<u64>) {
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let (mut sum, mut given) = (0_u128, 0);
    for weight in weights {
        sum += u128::from(*weight);
        let upto = u64::try_from(u128::from(whole) * sum / all).unwrap_or(whole);
        shares.push(upto - given);
        given = upto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MessageRole::{Assistant, System, Tool, User};

    #[test]
    fn each_block_is_a_message_but_for_results_that_follow_each_other() {
        let messages = [
            Message::new(System, "a"),
            Message::new(User, "b"),
            Message::new(Tool, "123"),
            Message::new(Tool, "1"),
            Message::new(User, "c"),
        ];
        let measured = Measured::from_marks(Counted::exactly(44), &[10, 13, 25, 40, 44], &messages);
        assert_eq!(measured.messages, [10, 3, 8, 4, 15]);
        // Tools made a block of their own.
        let measured = Measured::from_marks(Counted::exactly(44), &[10, 13, 20], &messages[1..2]);
        assert_eq!(measured.messages, [3]);
    }

    #[test]
    fn another_template_is_shared_out_by_bytes() {
        let messages = [Message::new(User, "1234567"), Message::new(Assistant, "123")];
        assert_eq!(Measured::from_marks(Counted::exactly(24), &[24], &messages).messages, [16, 8]);
        assert_eq!(Measured::from_weights(Counted::exactly(7), &[1, 1, 1]).messages.iter().sum::<u64>(), 7);
    }
}

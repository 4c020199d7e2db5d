//! What stands in a prompt between the client's instructions and its log: what is remembered of earlier conversations, and the
//! conversation that a new one goes on with.

use super::Completions;
use super::keeping::Before;
use session::{Message, MessageRole, Prompt};
use settings::Preset;

impl Completions {
    /// Of what was said before, oldest turns leave first: it takes half of the window at most, and less where the client's own
    /// log needs the room.
    pub async fn put_before(&self, prompt: &mut Prompt, before: Before, preset: &Preset) {
        let head = prompt.messages.iter().take_while(|message| message.role == MessageRole::System).count();
        let Before { remembered, carried } = before;
        let note = Some(remembered.trim()).filter(|text| !text.is_empty()).map(|text| self.wording.note(text));
        let log = prompt.messages.split_off(head);
        prompt.messages.extend(note);
        let (at, many) = (prompt.messages.len(), carried.len());
        prompt.messages.extend(carried.iter().cloned());
        prompt.messages.extend(log);
        if many == 0 {
            return;
        }
        let left_out = match self.model.measure(prompt, preset).await {
            Ok(measured) => {
                let tokens = measured.messages.get(at..at + many).unwrap_or_default();
                let of_log = measured.total.tokens.saturating_sub(tokens.iter().sum());
                let most = u64::from(preset.ctx_size.saturating_sub(preset.reply_reserve_tokens));
                left_out(&carried, tokens, u64::from(preset.ctx_size) / 2, most.saturating_sub(of_log))
            }
            Err(failure) => {
                tracing::warn!(%failure, "a conversation goes on without what was said before it");
                many
            }
        };
        prompt.messages.drain(at..at + left_out);
    }
}

/// How many of the oldest messages leave. Where the log grows into the room, half of what was left leaves at a time, so that
/// most prompts begin as the one before.
fn left_out(carried: &[Message], tokens: &[u64], most: u64, room: u64) -> usize {
    let mut budget = most;
    while budget > room {
        budget /= 2;
    }
    let is_turn = |at: usize| {
        carried[at].role == MessageRole::User
            && at.checked_sub(1).is_none_or(|before| carried[before].role != MessageRole::User)
    };
    let fits = |at: &usize| tokens.get(*at..).is_some_and(|rest| rest.iter().sum::<u64>() <= budget);
    (0..carried.len()).filter(|at| is_turn(*at)).find(fits).unwrap_or(carried.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_turns_leave_the_oldest_first_and_in_large_steps() {
        let roles = [
            MessageRole::Assistant,
            MessageRole::User,
            MessageRole::Assistant,
            MessageRole::User,
            MessageRole::Tool,
            MessageRole::Assistant,
        ];
        let carried: Vec<Message> = roles.map(|role| Message::new(role, "x")).into();
        let tokens = [10; 6];
        for (most, room, left) in [
            (100, 100, 1),
            (50, 100, 1),
            (49, 100, 3),
            (30, 100, 3),
            (29, 100, 6),
            (100, 49, 6),
            (100, 50, 1),
            (0, 0, 6),
        ] {
            assert_eq!(left_out(&carried, &tokens, most, room), left, "{most} {room}");
        }
    }
}

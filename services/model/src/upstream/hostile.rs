//! Reading of an upstream's answer without a socket: for proofs that send what no upstream would.

use super::nonsense;
use super::sse::Events;
use super::wire::Incoming;
use serde_json::Value;
use session::{Delta, Failure, Finish, Tool, Usage};

#[derive(Debug, PartialEq)]
pub struct HostileAnswer {
    pub deltas: Vec<Delta>,
    pub usage: Usage,
    pub finish: Option<Finish>,
}

pub fn hostile_answer(bytes: &[u8], piece_bytes: usize, tools: &[Tool]) -> Result<HostileAnswer, Failure> {
    let limit_bytes = bytes.len().max(1);
    let (mut events, mut incoming) = (Events::new(limit_bytes), Incoming::new(tools, limit_bytes * 2));
    let (mut datas, mut deltas) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        events.push(piece, &mut datas).map_err(|_| nonsense("an event without end"))?;
    }
    events.finish(&mut datas);
    for data in datas.iter().take_while(|data| data.trim() != super::DONE) {
        let chunk: Value = serde_json::from_str(data).map_err(|error| nonsense(&error.to_string()))?;
        incoming.chunk(&chunk, &mut deltas)?;
    }
    let finish = incoming.finish(&mut deltas);
    Ok(HostileAnswer { deltas, usage: incoming.usage(), finish })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(chunks: &[&str]) -> Result<HostileAnswer, Failure> {
        let chunk = |chunk: &&str| format!("data: {{\"choices\": [{{\"delta\": {chunk}}}]}}\n\n");
        hostile_answer(chunks.iter().map(chunk).collect::<String>().as_bytes(), usize::MAX, &[])
    }

    /// Found by bytes from outside: the rest of the second arguments was cut out in the middle of a character.
    #[test]
    fn arguments_that_come_as_text_and_then_as_an_object_are_refused() {
        let text = r#"{"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{\"a"}}]}"#;
        let object = r#"{"tool_calls": [{"index": 0, "function": {"arguments": {"ü": 1}}}]}"#;
        let refused = answer(&[text, object]).unwrap_err();
        assert!(refused.message.contains("twice"), "{refused:?}");
        assert!(answer(&[object]).is_ok());
    }

    #[test]
    fn an_upstream_counts_no_more_tokens_than_there_can_be() {
        let usage =
            r#"data: {"usage": {"prompt_tokens": 18446744073709551615, "completion_tokens": 18446744073709551615}}"#;
        let usage = hostile_answer(usage.as_bytes(), 7, &[]).unwrap().usage;
        assert!(usage.input_tokens.checked_add(usage.output_tokens).is_some(), "{usage:?}");
    }
}

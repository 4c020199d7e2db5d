use crate::answer::{Answer, Writer, channel_going_on};
use crate::request::ReplyKey;
use session::sentences::SentenceLimits;
use session::{Delta, Failure, FailureCode, Finish, TurnReport};
use settings::Questions;

#[derive(Clone, Debug)]
pub struct ResumedReply {
    pub key: ReplyKey,
    pub keep_as: ReplyKey,
    /// Deltas that were made before, without sentences; they come first.
    pub made: Vec<Delta>,
    pub in_message: bool,
    /// End of a complete reply, which needs no model. `None`: the model continues.
    pub ended: Option<Finish>,
    pub sentences: SentenceLimits,
    /// Rule for its end; the deltas in `made` already follow it.
    pub questions: Questions,
}

impl ResumedReply {
    /// Opens the answer and writes the deltas in `made`. `None` if that is all of it.
    pub fn begin(self) -> (Option<(Writer, ResumedReply)>, Answer) {
        let (writer, answer) = channel_going_on(self.sentences, self.questions, self.in_message);
        for delta in &self.made {
            writer.push(delta.clone());
        }
        if let Some(finish) = self.ended {
            let report = TurnReport { reason: Some("resumed"), ..TurnReport::default() };
            writer.push(Delta::Done { finish, usage: None, report: Some(report) });
            return (None, answer);
        }
        (Some((writer, self)), answer)
    }

    pub fn made_tokens(&self) -> (u64, u64) {
        let tokens = |delta: &Delta| match delta {
            Delta::Reasoning { tokens, .. } => (*tokens, *tokens),
            Delta::Text { tokens, .. } | Delta::CallArguments { tokens, .. } => (*tokens, 0),
            _ => (0, 0),
        };
        self.made.iter().map(tokens).fold((0, 0), |(all, thought), (more, of_it)| (all + more, thought + of_it))
    }
}

pub fn not_kept() -> Failure {
    let message = "what was computed of the reply is not there any more; ask for a new one";
    Failure::new(FailureCode::EngineFailed, message)
}

//! A reply that goes on after it was stopped.

use crate::answer::{Answer, Writer, channel_going_on};
use crate::request::ReplyKey;
use session::sentences::SentenceLimits;
use session::{Delta, Failure, FailureCode, Finish, TurnReport};
use settings::Questions;

/// A reply that was stopped and is to go on.
#[derive(Clone, Debug)]
pub struct ResumedReply {
    pub key: ReplyKey,
    /// If it is stopped again.
    pub keep_as: ReplyKey,
    /// What was made of it before and comes first, without sentences.
    pub made: Vec<Delta>,
    /// It goes on in the middle of a message.
    pub in_message: bool,
    /// It was done before it could be stopped: no model is needed. None: the model that has stopped goes on.
    pub ended: Option<Finish>,
    pub sentences: SentenceLimits,
    /// How its last words are to be. Those that were made are as they are to be.
    pub questions: Questions,
}

impl ResumedReply {
    /// The answer, which begins with what was made. None: that is all of it.
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

    /// Tokens of what was made before, and of those the ones that were thought.
    pub fn made_tokens(&self) -> (u64, u64) {
        let tokens = |delta: &Delta| match delta {
            Delta::Reasoning { tokens, .. } => (*tokens, *tokens),
            Delta::Text { tokens, .. } | Delta::CallArguments { tokens, .. } => (*tokens, 0),
            _ => (0, 0),
        };
        self.made.iter().map(tokens).fold((0, 0), |(all, thought), (more, of_it)| (all + more, thought + of_it))
    }
}

/// No model has kept the reply.
pub fn not_kept() -> Failure {
    let message = "what was computed of the reply is not there any more; ask for a new one";
    Failure::new(FailureCode::EngineFailed, message)
}

//! Changes of facts that the preset's model finds in what a person said.

use super::change::{Remembered, SaidAt};
use crate::shared::Shared;
use model::{Answer, ModelRequest};
use remember::{FactChange, LearnedChange, ShownFact, learn_request, learned};
use session::{Delta, Failure, FailureCode, Finish, Message, MessageRole, Prompt};
use settings::Preset;
use std::sync::Arc;
use store::{Error, FoundBy, SaidMessage, UnheardSession, past_reused_by};

const LEARN_TOKENS: u32 = 512;
/// Facts of the person that the model is shown, and characters of one.
const MOST_SHOWN: u32 = 32;
const SHOWN_CHARS: usize = 300;

impl Shared {
    /// Asks the model what a person's messages change of what is known of them. No line of its answer counts without a message that
    /// holds it.
    pub(super) async fn changes_by_model(
        &self,
        silent: &UnheardSession,
        preset: &Arc<Preset>,
        person: &str,
        said: &[SaidMessage],
    ) -> Result<Result<Remembered, Failure>, Error> {
        let session = &silent.session;
        let best = self.store.facts_to_tell(session.user(), person, MOST_SHOWN).await?;
        let ids: Vec<String> = best.into_iter().map(|fact| fact.id).collect();
        let mut facts = self.store.holding_facts(session.user(), &ids).await?;
        facts.retain(|fact| fact.text.chars().count() <= SHOWN_CHARS);
        let texts: Vec<&str> = said.iter().map(|message| message.text.as_str()).collect();
        let shown: Vec<ShownFact> =
            facts.iter().map(|fact| ShownFact { text: &fact.text, about: &fact.about }).collect();
        let message = Message::new(MessageRole::User, learn_request(&texts, &shown));
        let prompt = Prompt { messages: vec![message], ..Prompt::default() };
        let mut ask = ModelRequest::for_summary(prompt, preset.clone(), LEARN_TOKENS, false);
        ask.user = Some(session.past_user());
        ask.reused_by = Some(past_reused_by(session.user(), person, false));
        let answer = match read(self.model.ask(ask)).await {
            Ok(answer) => answer,
            Err(failure) => return Ok(Err(failure)),
        };
        let changes = learned(&answer, &texts, &shown);
        let kept: Vec<FactChange> = changes.iter().filter_map(|(_, change)| kept(change)).collect();
        let mut remembered = self.known(session.user(), person, kept.iter()).await?;
        remembered.add(&facts);
        for (index, change) in changes {
            let (message, source) = (&said[index], SaidAt::of(silent, &said[index]));
            match change {
                LearnedChange::Keep(statement) => remembered.keep(statement, FoundBy::Model, &source)?,
                LearnedChange::Replace(fact, statement) => {
                    remembered.keep_instead(statement, FoundBy::Model, &source, Some(facts[fact].id.as_str()))?;
                }
                LearnedChange::Forget(fact) if facts[fact].said_at_ms <= message.created_at_ms => {
                    remembered.forget_one(&facts[fact].id);
                    remembered.unsay(session.id(), &message.item_id);
                }
                LearnedChange::Forget(_) => {}
            }
        }
        Ok(Ok(remembered))
    }
}

fn kept(change: &LearnedChange) -> Option<FactChange> {
    match change {
        LearnedChange::Keep(statement) | LearnedChange::Replace(_, statement) => {
            Some(FactChange::Keep(statement.clone()))
        }
        LearnedChange::Forget(_) => None,
    }
}

async fn read(mut answer: Answer) -> Result<String, Failure> {
    let mut text = String::new();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Text { text: more, .. } => text.push_str(&more),
            // A line that was cut is checked like all others.
            Delta::Done { finish, .. } if finish == Finish::Stop || !text.is_empty() => return Ok(text),
            Delta::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
    Err(Failure::new(FailureCode::EngineFailed, "the model said nothing; it is asked again later"))
}

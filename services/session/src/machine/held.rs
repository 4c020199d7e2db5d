//! A reply that was stopped and may go on: a cough is no interruption.
//!
//! For some seconds the model keeps what it computed (`Finish::Held`), and the machine what it said. A client that asks for
//! `Input::Resume` hears the words from where it stopped hearing, and then what the model goes on to say. Whatever else is
//! said meanwhile was a real interruption.

use super::conversation::Conversation;
use super::happening::{GenerationId, Millis};
use super::output::{Generate, Resume};
use crate::speech::{self, words};
use crate::vocabulary::{
    Delta, Finish, GenerationOptions, Heard, Item, ItemBody, ItemStatus, MaxTokens, NewItem, ResponseFormat,
    ResumeRequest, Role,
};

#[derive(Clone, Debug)]
pub struct HeldReply {
    /// Under which the model made it, and may keep it.
    pub generation: GenerationId,
    /// What was being said. None: no word of it had come.
    pub item: Option<Item>,
    /// What the model has made since, which no client was told.
    made: Vec<Delta>,
    stage: Stage,
    /// What it was asked with. None: nothing is left to be made.
    pub asked: Option<Box<Generate>>,
    pub recalls_left: u32,
    is_speech: bool,
    pub max_output_tokens: MaxTokens,
    /// Too late from then on.
    pub until: Millis,
    /// The client deleted the item: it has to make it again.
    is_deleted: bool,
    /// The client showed that nothing interrupted: it made the item again, or the user said no more than 'mhm'.
    pub goes_on: bool,
    /// It goes on as this generation, once the model has stopped.
    pub wanted: Option<GenerationId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The model has not stopped yet.
    Stopping,
    /// The model can go on.
    Kept,
    /// The model was done.
    Ended(Finish),
    /// The model has kept nothing.
    Lost,
}

impl HeldReply {
    /// A reply of this generation, that was stopped while it said this item.
    pub fn stopped(
        generation: GenerationId,
        item: Option<Item>,
        asked: Option<Box<Generate>>,
        recalls_left: u32,
        max_output_tokens: MaxTokens,
    ) -> HeldReply {
        let is_plain =
            |options: &GenerationOptions| options.response_format == ResponseFormat::Text && options.logprobs.is_none();
        HeldReply {
            generation,
            item,
            is_speech: asked.as_ref().is_some_and(|asked| is_plain(&asked.options)),
            made: Vec::new(),
            stage: Stage::Stopping,
            asked,
            recalls_left,
            max_output_tokens,
            until: 0,
            is_deleted: false,
            goes_on: false,
            wanted: None,
        }
    }

    /// A reply that was complete, and of which not all was heard.
    pub fn cut_short(item: Item) -> HeldReply {
        let held = HeldReply::stopped(GenerationId(0), Some(item), None, 0, MaxTokens::Unlimited);
        HeldReply { stage: Stage::Ended(Finish::Stop), ..held }
    }

    pub fn until(self, until: Millis) -> HeldReply {
        HeldReply { until, ..self }
    }

    pub fn is_about(&self, item_id: &str) -> bool {
        self.item.as_ref().is_some_and(|item| item.id == item_id)
    }

    pub fn delete(&mut self) {
        (self.is_deleted, self.goes_on) = (true, false);
    }

    /// A client adds an item. Whether the reply may still go on.
    pub fn outlives(&mut self, new: &NewItem, backchannels: &[String]) -> bool {
        let ItemBody::Message { role, parts, .. } = &new.body else { return false };
        let text = parts.concat();
        let is_made_again = self.is_deleted
            && *role == Role::Assistant
            && new.id.as_deref().is_some_and(|id| self.is_about(id))
            && self.item.as_ref().is_some_and(|item| item.text().starts_with(&text));
        let is_backchannel = !self.is_deleted && *role == Role::User && is_backchannel(&text, backchannels);
        self.is_deleted &= !is_made_again;
        self.goes_on = is_made_again || is_backchannel;
        self.goes_on
    }

    /// The model says more of it, after it was stopped. Whether it has stopped now.
    pub fn hear(&mut self, delta: &Delta) -> bool {
        match delta {
            Delta::Prompt { .. } => return false,
            Delta::Done { finish, .. } => {
                self.stage = match finish {
                    Finish::Held => Stage::Kept,
                    Finish::Cancelled | Finish::Warm => Stage::Lost,
                    finish => Stage::Ended(*finish),
                };
            }
            Delta::Failed(_) => self.stage = Stage::Lost,
            // Its sentences are cut anew, from where the user heard it.
            Delta::Text { text, tokens, logprobs, .. } => {
                let (text, sentences) = (text.clone(), Vec::new());
                self.made.push(Delta::Text { text, tokens: *tokens, sentences, logprobs: logprobs.clone() });
            }
            delta => self.made.push(delta.clone()),
        }
        delta.is_last()
    }

    pub fn is_lost(&self) -> bool {
        self.stage == Stage::Lost
    }

    pub fn has_stopped(&self) -> bool {
        self.stage != Stage::Stopping
    }

    /// How much of its item was heard, if the reply can go on: as the client says, else as much as the conversation has.
    pub fn heard(&self, asked: &ResumeRequest, words_per_minute: u32, conversation: &Conversation) -> Option<String> {
        if self.is_lost() || self.is_deleted {
            return None;
        }
        let Some(item) = &self.item else { return asked.item_id.is_none().then(String::new) };
        if asked.item_id.as_ref().is_some_and(|id| *id != item.id) {
            return None;
        }
        let (all, stands) = (item.text(), conversation.shown(&item.id)?.text());
        let heard = match asked.heard {
            None => all.strip_prefix(&stands).map(|_| stands)?,
            Some(Heard::Chars(chars)) => all.chars().take(chars).collect(),
            Some(Heard::Ms(ms)) => all.chars().take(speech::heard_chars(&all, ms, words_per_minute)).collect(),
        };
        let is_whole = heard == all && self.made.is_empty() && matches!(self.stage, Stage::Ended(_));
        Some(heard).filter(|_| !is_whole)
    }

    /// What is to be told from where it was heard, and how it goes on then.
    pub fn resume(self, generation: GenerationId, heard: &str) -> Resume {
        let all = self.item.as_ref().map(Item::text).unwrap_or_default();
        let unheard = all.get(heard.len()..).filter(|text| !text.is_empty()).map(|text| Delta::text(text, 0));
        Resume {
            generation,
            of: self.generation,
            made: unheard.into_iter().chain(self.made).collect(),
            in_message: self.item.is_some(),
            is_speech: self.is_speech,
            ended: match self.stage {
                Stage::Ended(finish) => Some(finish),
                Stage::Stopping | Stage::Kept | Stage::Lost => None,
            },
        }
    }

    /// The item as it goes on.
    pub fn item_from(&self, heard: &str) -> Option<Item> {
        let item = self.item.as_ref()?;
        Some(Item::new(&item.id, ItemBody::message(Role::Assistant, heard), ItemStatus::InProgress))
    }
}

/// Whether this is no turn of the user's: 'Mhm.'
fn is_backchannel(text: &str, backchannels: &[String]) -> bool {
    let said = words(text);
    !said.is_empty() && backchannels.iter().any(|known| words(known) == said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backchannel_is_nothing_but_one() {
        let known = ["mhm".to_owned(), "uh-huh".to_owned()];
        for said in ["mhm", " Mhm. ", "Uh-huh!", "uh huh"] {
            assert!(is_backchannel(said, &known), "{said}");
        }
        for said in ["", "...", "mhm, stop", "uh", "stop"] {
            assert!(!is_backchannel(said, &known), "{said}");
        }
    }
}

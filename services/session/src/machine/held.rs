//! A stopped reply that may resume: a cough is no interruption.
//!
//! For some seconds the model keeps what it computed (`Finish::Held`), and the machine the words. A client that asks
//! for `Input::Resume` hears the words from where it stopped hearing, and then the rest of the reply. Any other input
//! in the meantime was a real interruption.

use super::conversation::Conversation;
use super::input::{GenerationId, Millis};
use super::output::{Generate, Resume};
use crate::speech::{self, words};
use crate::vocabulary::{
    Delta, Finish, GenerationOptions, Heard, Item, ItemBody, ItemStatus, MaxTokens, NewItem, ResponseFormat,
    ResumeRequest, Role,
};

#[derive(Clone, Debug)]
pub struct HeldReply {
    /// Generation under which the model made the reply, and may keep it.
    pub generation: GenerationId,
    pub item: Option<Item>,
    made: Vec<Delta>,
    stage: Stage,
    /// Request of the reply. `None` if the model has nothing left to make.
    pub asked: Option<Box<Generate>>,
    pub recalls_left: u32,
    is_speech: bool,
    pub max_output_tokens: MaxTokens,
    pub until: Millis,
    is_deleted: bool,
    /// True if nothing interrupted: the client created the item again, or the user said no more than 'mhm'.
    pub goes_on: bool,
    pub wanted: Option<GenerationId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Stopping,
    Kept,
    Ended(Finish),
    Lost,
}

impl HeldReply {
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
            // The cutter splits this text again, from where the user stopped hearing.
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

    /// Returns the heard text of the item, if the reply can resume: as far as the client says, else as the conversation
    /// has it.
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

    pub fn item_from(&self, heard: &str) -> Option<Item> {
        let item = self.item.as_ref()?;
        Some(Item::new(&item.id, ItemBody::message(Role::Assistant, heard), ItemStatus::InProgress))
    }
}

/// True for a listener's noise that is no turn: 'Mhm.'
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

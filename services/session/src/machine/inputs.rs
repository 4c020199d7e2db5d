//! What a client says, but for responses.

use super::core::{Machine, Moment};
use super::happening::ConnId;
use super::output::StoreOp;
use super::responses::End;
use super::storing::{Operation, Undo};
use crate::speech;
use crate::vocabulary::{
    ConfigUpdate, Event, Heard, Input, Item, ItemBody, ItemPlace, ItemStatus, ItemUse, NewItem, Refusal, Role,
};
use std::sync::Arc;

/// The client that asked, and its own id of that: a refusal is told to it.
#[derive(Clone, Debug)]
pub struct Asker {
    pub conn: ConnId,
    pub input_id: Option<String>,
}

impl Machine {
    pub(super) fn said(&mut self, conn: ConnId, input_id: Option<String>, input: Input, moment: &mut Moment) {
        if !self.clients.has(conn) || self.draining {
            return; // the client's last words crossed with our goodbye
        }
        let asker = Asker { conn, input_id };
        let done = match input {
            Input::Configure(update) => {
                self.configure(&asker, &update);
                Ok(())
            }
            Input::AddItem { item, place } => self.add_item(&asker, item, &place),
            Input::ReadItem { item_id } => self.read_item(&asker, item_id),
            Input::TruncateItem { item_id, part, heard } => self.truncate_item(&asker, item_id, part, heard, moment),
            Input::DeleteItem { item_id } => self.delete_item(&asker, item_id, moment),
            Input::Respond(request) => self.create_response(&request, moment),
            Input::CancelResponse { response_id } => self.cancel_response(response_id.as_deref(), moment),
            Input::DropSpeech => {
                self.send_to(conn, Event::SpeechDropped);
                Ok(())
            }
            Input::Hear { text } => {
                self.update_buffer(text);
                Ok(())
            }
            Input::HeardAll { text, item_id, respond } => self.heard_all(&asker, text, item_id, respond, moment),
        };
        if let Err(refusal) = done {
            self.refuse(asker, refusal);
        }
    }

    pub(super) fn refuse(&mut self, asker: Asker, refusal: Refusal) {
        self.send_to(asker.conn, Event::Refused { input_id: asker.input_id, refusal });
    }

    fn configure(&mut self, asker: &Asker, update: &ConfigUpdate) {
        let mut config = self.config.clone();
        config.apply(update);
        if config == self.config {
            let state = self.state();
            return self.send_to(asker.conn, Event::Configured(state));
        }
        let old = std::mem::replace(&mut self.config, config.clone());
        self.warming.wanted = true;
        let operation = Operation::of(asker, Undo::Config(Box::new(old)));
        let op = self.store(StoreOp::ConfigChanged { config }, operation);
        let state = self.state();
        self.send_after(Some(op), Event::Configured(state));
    }

    /// The item is in the conversation at once; clients hear of it when it is stored.
    fn add_item(&mut self, asker: &Asker, item: NewItem, place: &ItemPlace) -> Result<(), Refusal> {
        let limit = self.limits.session_items;
        if self.conversation.len() >= limit {
            return Err(Refusal::TooManyItems { limit });
        }
        if let ItemPlace::After(id) = place
            && self.conversation.announced(id).is_none()
        {
            return Err(Refusal::NoSuchPlace { item_id: id.clone() });
        }
        let item = self.complete_item(item);
        if self.conversation.has(&item.id) {
            return Err(Refusal::ItemExists { item_id: item.id });
        }
        let after = self.conversation.insert(item.clone(), true, place);
        let previous_item_id = self.conversation.previous_announced(&item.id);
        let operation = Operation::of(asker, Undo::Added(item.id.clone()));
        let op = self.store(StoreOp::ItemAdded { item: item.clone(), after }, operation);
        self.send_after(Some(op), Event::ItemAdded { item, previous_item_id, is_new: true });
        self.warming.wanted = true;
        Ok(())
    }

    /// Gives the item the ids that the client left to us.
    pub(super) fn complete_item(&mut self, item: NewItem) -> Item {
        let id = item.id.unwrap_or_else(|| self.new_item_id());
        let mut body = item.body;
        if let ItemBody::FunctionCall { call_id, .. } = &mut body
            && call_id.is_empty()
        {
            *call_id = self.ids.next("call");
        }
        Item::new(id, body, ItemStatus::Completed)
    }

    pub(super) fn new_item_id(&mut self) -> String {
        loop {
            let id = self.ids.next("item");
            if !self.conversation.has(&id) {
                return id;
            }
        }
    }

    fn read_item(&mut self, asker: &Asker, item_id: String) -> Result<(), Refusal> {
        let Some(item) = self.conversation.announced(&item_id) else {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Read });
        };
        let said = self.replies.iter().find(|reply| reply.is_saying(&item_id)).and_then(|reply| reply.item_so_far());
        let item = said.unwrap_or_else(|| Item::clone(item));
        self.send_to(asker.conn, Event::ItemRead { item });
        Ok(())
    }

    /// The history says what was heard from now on.
    fn truncate_item(
        &mut self,
        asker: &Asker,
        item_id: String,
        part: usize,
        heard: Heard,
        moment: &mut Moment,
    ) -> Result<(), Refusal> {
        if self.conversation.announced(&item_id).is_some() {
            self.stop_saying(&item_id, moment);
        }
        let Some(old) = self.conversation.announced(&item_id) else {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Truncate });
        };
        let mut item = Item::clone(old);
        let ItemBody::Message { role: Role::Assistant, parts } = &mut item.body else {
            return Err(Refusal::NotTruncatable);
        };
        let count = parts.len();
        let Some(text) = parts.get_mut(part) else { return Err(Refusal::NoSuchPart { parts: count }) };
        let all = text.chars().count();
        let heard_chars = match heard {
            Heard::Chars(chars) => chars.min(all),
            Heard::Ms(ms) => speech::heard_chars(text, ms, self.speaking),
        };
        *text = text.chars().take(heard_chars).collect();
        let heard_ms = match heard {
            Heard::Ms(ms) => ms,
            Heard::Chars(_) => speech::spoken_ms(text, self.speaking),
        };
        if heard_chars < all || part + 1 < count {
            parts.truncate(part + 1);
            item.status = ItemStatus::Incomplete;
        }
        let Some(old) = self.conversation.replace(Arc::new(item.clone())) else { return Ok(()) };
        let operation = Operation::of(asker, Undo::Truncated(old));
        let op = self.store(StoreOp::ItemTruncated { item, part, heard_chars }, operation);
        self.send_after(Some(op), Event::ItemTruncated { item_id, part, heard_ms, heard_chars });
        self.warming.wanted = true;
        Ok(())
    }

    fn delete_item(&mut self, asker: &Asker, item_id: String, moment: &mut Moment) -> Result<(), Refusal> {
        if self.conversation.announced(&item_id).is_none() {
            return Err(Refusal::NoSuchItem { item_id, wanted: ItemUse::Delete });
        }
        self.stop_saying(&item_id, moment);
        // A call that was cut off went with its response.
        let Some(removed) = self.conversation.remove(&item_id) else { return Ok(()) };
        let operation = Operation::of(asker, Undo::Deleted(removed));
        let op = self.store(StoreOp::ItemDeleted { item_id: item_id.clone() }, operation);
        self.send_after(Some(op), Event::ItemDeleted { item_id });
        self.warming.wanted = true;
        Ok(())
    }

    /// An item that is changed is no longer being said.
    fn stop_saying(&mut self, item_id: &str, moment: &mut Moment) {
        if let Some(index) = self.replies.iter().position(|reply| reply.in_conversation && reply.is_saying(item_id)) {
            let reply = self.replies.remove(index);
            self.end_reply(reply, End::Cancelled, moment);
        }
    }

    /// The user has spoken.
    fn heard_all(
        &mut self,
        asker: &Asker,
        text: Option<String>,
        item_id: Option<String>,
        respond: bool,
        moment: &mut Moment,
    ) -> Result<(), Refusal> {
        let text = text.unwrap_or_else(|| self.buffer.clone());
        if text.trim().is_empty() {
            return Err(Refusal::NothingSaid);
        }
        let item = NewItem { id: item_id, body: ItemBody::message(Role::User, text) };
        self.add_item(asker, item, &ItemPlace::End)?;
        self.buffer.clear();
        if respond { self.create_response(&Default::default(), moment) } else { Ok(()) }
    }
}

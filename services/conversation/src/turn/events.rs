//! What a client asks for, but for responses.

use super::conversation::Place;
use super::input::ConnId;
use super::machine::{Machine, Moment};
use super::output::StoreOp;
use super::responses::End;
use super::storing::{Operation, Undo};
use crate::realtime::{
    ClientEvent, EXTENSION, ErrorBody, ErrorCode, EventKind, Item, ItemBody, ItemStatus, NewItem, Received, Role,
    SessionUpdate, SessionView, TruncateAt,
};
use crate::speech;
use std::sync::Arc;

/// Who asked, and under which id: an error is told to them.
#[derive(Clone, Debug)]
pub struct Asker {
    pub conn: ConnId,
    pub event_id: Option<String>,
}

impl Machine {
    pub(super) fn client_event(&mut self, conn: ConnId, received: Received, moment: &mut Moment) {
        if !self.clients.has(conn) || self.draining {
            return; // its last words crossed with our goodbye
        }
        let Received { event_id, event } = received;
        let asker = Asker { conn, event_id };
        if event.is_extension() && !self.clients.has_extensions(conn) {
            let message = format!("connect with ?extensions={EXTENSION} or set session.extensions to use this event");
            return self.refuse(asker, ErrorBody::new(ErrorCode::ExtensionNotEnabled, message).param("type"));
        }
        let result = match event {
            ClientEvent::SessionUpdate(update) => {
                self.update_session(&asker, &update);
                Ok(())
            }
            ClientEvent::ItemCreate { item, previous_item_id } => {
                self.create_item(&asker, item, previous_item_id.as_deref())
            }
            ClientEvent::ItemRetrieve { item_id } => self.retrieve_item(&asker, &item_id),
            ClientEvent::ItemTruncate { item_id, content_index, at } => {
                self.truncate_item(&asker, &item_id, content_index, at, moment)
            }
            ClientEvent::ItemDelete { item_id } => self.delete_item(&asker, &item_id, moment),
            ClientEvent::ResponseCreate(params) => self.create_response(&params, moment),
            ClientEvent::ResponseCancel { response_id } => self.cancel_response(response_id.as_deref(), moment),
            ClientEvent::InputAudioBufferClear => {
                self.send_to(conn, EventKind::InputAudioBufferCleared {});
                Ok(())
            }
            ClientEvent::InputTextBufferUpdate { text } => {
                self.update_buffer(text);
                Ok(())
            }
            ClientEvent::InputTextBufferCommit { text, item_id, create_response } => {
                self.commit_buffer(&asker, text, item_id, create_response, moment)
            }
            ClientEvent::InputTextBufferClear => {
                self.update_buffer(String::new());
                Ok(())
            }
        };
        if let Err(error) = result {
            self.refuse(asker, error);
        }
    }

    pub(super) fn refuse(&mut self, asker: Asker, error: ErrorBody) {
        let error = error.caused_by(asker.event_id);
        self.send_to(asker.conn, EventKind::Error { error });
    }

    pub(super) fn session_view(&self, extensions: bool) -> Box<SessionView> {
        Box::new(SessionView::new(&self.session_id, &self.model, &self.config, extensions))
    }

    fn update_session(&mut self, asker: &Asker, update: &SessionUpdate) {
        if let Some(names) = &update.extensions {
            self.clients.set_extensions(asker.conn, names.iter().any(|name| name == EXTENSION));
        }
        let mut config = self.config.clone();
        config.apply(update);
        if config == self.config {
            let session = self.session_view(self.clients.has_extensions(asker.conn));
            return self.send_to(asker.conn, EventKind::SessionUpdated { session });
        }
        let old = std::mem::replace(&mut self.config, config.clone());
        self.warming.wanted = true;
        let operation = Operation::of(asker, Undo::Config(Box::new(old)));
        let op = self.store(StoreOp::ConfigChanged { config }, operation);
        let clients: Vec<_> = self.clients.iter().collect();
        for client in clients {
            let session = self.session_view(client.extensions);
            self.send_one_after(op, client.conn, EventKind::SessionUpdated { session });
        }
    }

    /// The item is in the conversation at once; clients hear of it when it is stored.
    fn create_item(&mut self, asker: &Asker, item: NewItem, previous_item_id: Option<&str>) -> Result<(), ErrorBody> {
        if self.conversation.len() >= self.limits.session_items {
            let message = format!("a session holds at most {} items: delete some", self.limits.session_items);
            return Err(ErrorBody::new(ErrorCode::TooManyItems, message));
        }
        let place = match previous_item_id {
            None => Place::End,
            Some("root") => Place::Head,
            Some(id) if self.conversation.announced(id).is_some() => Place::After(id),
            Some(id) => {
                let message = format!("there is no item '{id}' to place the new one after");
                return Err(
                    ErrorBody::new(ErrorCode::ItemCreateInvalidPreviousItemId, message).param("previous_item_id")
                );
            }
        };
        let item = self.complete_item(item);
        if self.conversation.has(&item.id) {
            let message = format!("there is an item '{}' already: delete it first", item.id);
            return Err(ErrorBody::new(ErrorCode::ItemCreateDuplicateItemId, message).param("item.id"));
        }
        let after = self.conversation.insert(item.clone(), true, place);
        let previous_item_id = self.conversation.previous_announced(&item.id);
        let operation = Operation::of(asker, Undo::Added(item.id.clone()));
        let op = Some(self.store(StoreOp::ItemAdded { item: item.clone(), after }, operation));
        self.send_after(op, EventKind::ItemAdded { previous_item_id: previous_item_id.clone(), item: item.clone() });
        self.send_after(op, EventKind::ItemDone { previous_item_id, item });
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

    fn retrieve_item(&mut self, asker: &Asker, item_id: &str) -> Result<(), ErrorBody> {
        let Some(item) = self.conversation.announced(item_id) else {
            return Err(no_item(ErrorCode::ItemRetrieveInvalidItemId, item_id));
        };
        let said = self.replies.iter().find(|reply| reply.is_saying(item_id)).and_then(|reply| reply.item_so_far());
        let item = said.unwrap_or_else(|| Item::clone(item));
        self.send_to(asker.conn, EventKind::ItemRetrieved { item });
        Ok(())
    }

    /// The history says what was heard from now on.
    fn truncate_item(
        &mut self,
        asker: &Asker,
        item_id: &str,
        content_index: usize,
        at: TruncateAt,
        moment: &mut Moment,
    ) -> Result<(), ErrorBody> {
        if self.conversation.announced(item_id).is_none() {
            return Err(no_item(ErrorCode::ItemTruncateInvalidItemId, item_id));
        }
        self.stop_saying(item_id, moment);
        let Some(old) = self.conversation.announced(item_id) else {
            return Err(no_item(ErrorCode::ItemTruncateInvalidItemId, item_id));
        };
        let mut item = Item::clone(old);
        let ItemBody::Message { role: Role::Assistant, content } = &mut item.body else {
            let message = "only a message of the assistant can be truncated";
            return Err(ErrorBody::new(ErrorCode::ItemTruncateInvalidItemId, message).param("item_id"));
        };
        let parts = content.len();
        let Some(part) = content.get_mut(content_index) else {
            let message = format!("the item has {parts} content parts");
            return Err(ErrorBody::new(ErrorCode::InvalidValue, message).param("content_index"));
        };
        let all = part.text.chars().count();
        let text_end = match at {
            TruncateAt::TextEnd(end) => end.min(all),
            TruncateAt::AudioEndMs(ms) => speech::heard_chars(&part.text, ms, self.speaking),
        };
        part.text = part.text.chars().take(text_end).collect();
        let audio_end_ms = match at {
            TruncateAt::AudioEndMs(ms) => ms,
            TruncateAt::TextEnd(_) => speech::spoken_ms(&part.text, self.speaking),
        };
        let item_id = item_id.to_owned();
        let event = EventKind::ItemTruncated { item_id, content_index, audio_end_ms, text_end };
        if text_end < all || content_index + 1 < parts {
            content.truncate(content_index + 1);
            item.status = ItemStatus::Incomplete;
        }
        let Some(old) = self.conversation.replace(Arc::new(item.clone())) else { return Ok(()) };
        let operation = Operation::of(asker, Undo::Truncated(old));
        let op = self.store(StoreOp::ItemTruncated { item, content_index, text_end }, operation);
        self.send_after(Some(op), event);
        self.warming.wanted = true;
        Ok(())
    }

    fn delete_item(&mut self, asker: &Asker, item_id: &str, moment: &mut Moment) -> Result<(), ErrorBody> {
        if self.conversation.announced(item_id).is_none() {
            return Err(no_item(ErrorCode::ItemDeleteInvalidItemId, item_id));
        }
        self.stop_saying(item_id, moment);
        // A call that was cut off went with its response.
        let Some(removed) = self.conversation.remove(item_id) else { return Ok(()) };
        let operation = Operation::of(asker, Undo::Deleted(removed));
        let op = self.store(StoreOp::ItemDeleted { item_id: item_id.to_owned() }, operation);
        self.send_after(Some(op), EventKind::ItemDeleted { item_id: item_id.to_owned() });
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
    fn commit_buffer(
        &mut self,
        asker: &Asker,
        text: Option<String>,
        item_id: Option<String>,
        create_response: bool,
        moment: &mut Moment,
    ) -> Result<(), ErrorBody> {
        let text = text.unwrap_or_else(|| self.buffer.clone());
        if text.trim().is_empty() {
            let message = "nothing was said: send input_text_buffer.update first, or commit with a text";
            return Err(ErrorBody::new(ErrorCode::InputTextBufferCommitEmpty, message).param("text"));
        }
        let item = NewItem { id: item_id, body: ItemBody::message(Role::User, text) };
        self.create_item(asker, item, None)?;
        self.buffer.clear();
        if create_response { self.create_response(&Default::default(), moment) } else { Ok(()) }
    }
}

fn no_item(code: ErrorCode, item_id: &str) -> ErrorBody {
    ErrorBody::new(code, format!("there is no item '{item_id}'")).param("item_id")
}

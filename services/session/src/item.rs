use crate::ids::NOTE_OF_PAST;
use crate::vocabulary::{Item, ItemBody, ItemStatus, NamedSpeaker, Role};

impl Item {
    pub fn new(id: impl Into<String>, body: ItemBody, status: ItemStatus) -> Item {
        Item { id: id.into(), body, status }
    }

    pub fn message(id: impl Into<String>, role: Role, text: impl Into<String>) -> Item {
        Item::new(id, ItemBody::message(role, text), ItemStatus::Completed)
    }

    pub fn role(&self) -> Option<Role> {
        match &self.body {
            ItemBody::Message { role, .. } => Some(*role),
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => None,
        }
    }

    /// True for words of the past that the service put before a question. Clients never see them.
    pub fn is_note_of_past(&self) -> bool {
        self.role() == Some(Role::System) && self.id.starts_with(NOTE_OF_PAST)
    }

    pub fn speaker(&self) -> Option<&NamedSpeaker> {
        match &self.body {
            ItemBody::Message { speaker, .. } => speaker.as_ref(),
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => None,
        }
    }

    pub fn is_said_by_user(&self) -> bool {
        self.role() == Some(Role::User)
    }

    pub fn text(&self) -> String {
        match &self.body {
            ItemBody::Message { parts, .. } => parts.concat(),
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
        }
    }

    /// Cuts a message to the first `bytes` of its first part and marks it incomplete. True if it was longer.
    pub fn shorten(&mut self, bytes: usize) -> bool {
        let ItemBody::Message { parts, .. } = &mut self.body else { return false };
        let Some(text) = parts.first_mut() else { return false };
        if text.len() <= bytes {
            return false;
        }
        text.truncate(text.floor_char_boundary(bytes));
        parts.truncate(1);
        self.status = ItemStatus::Incomplete;
        true
    }

    /// Cuts this part to the characters that the user heard, and returns how many of them the part has. `None` if there
    /// is no such part.
    pub fn cut(&mut self, part: usize, heard_chars: usize) -> Option<usize> {
        let ItemBody::Message { parts, .. } = &mut self.body else { return None };
        let count = parts.len();
        let text = parts.get_mut(part)?;
        let all = text.chars().count();
        *text = text.chars().take(heard_chars).collect();
        if heard_chars < all || part + 1 < count {
            parts.truncate(part + 1);
            self.status = ItemStatus::Incomplete;
        }
        Some(heard_chars.min(all))
    }
}

impl ItemBody {
    pub fn message(role: Role, text: impl Into<String>) -> ItemBody {
        ItemBody::Message { role, parts: vec![text.into()], speaker: None }
    }

    /// Returns the body without the speaker's name: clients that send a conversation again leave it out.
    pub fn unnamed(&self) -> ItemBody {
        let mut body = self.clone();
        if let ItemBody::Message { speaker, .. } = &mut body {
            *speaker = None;
        }
        body
    }

    pub fn text_bytes(&self) -> usize {
        match self {
            ItemBody::Message { parts, .. } => parts.iter().map(String::len).sum(),
            ItemBody::FunctionCall { name, arguments, .. } => name.len() + arguments.len(),
            ItemBody::FunctionCallOutput { output, .. } => output.len(),
        }
    }
}

impl Role {
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl ItemStatus {
    pub fn word(self) -> &'static str {
        self.into()
    }
}

//! The owner of a request, made in one place: `Persons::scope`.

use model::ModelRequest;
use runtime::NewSession;
use session::{ItemBody, Message, MessageRole, NamedSpeaker};
use settings::ChangedHead;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use store::{LogOwner, past_reused_by, past_user};
use telemetry::TraceParent;

/// The owner of a request, from the door inwards. What is computed, told or kept for the request carries it, and nothing
/// is read across.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub user: String,
    pub key: Option<String>,
    pub secret: Option<String>,
    /// Person whose words the request holds. Empty: the home's guest.
    pub person: String,
    pub room: String,
    pub is_private: bool,
    /// True if a session that the client asks for is the household's, where no rule names a person or a room.
    pub is_of_household: bool,
    pub name: Option<String>,
    /// Persons of the speakers that the messages name, where rules name one.
    pub named: BTreeMap<String, String>,
    /// Minutes within which a new conversation goes on with the last one. 0: never.
    pub continue_minutes: u64,
    pub agent: String,
    pub changed_head: ChangedHead,
    /// Place of the request in its client's trace.
    pub trace_parent: Option<TraceParent>,
}

pub type ScopeDigest = [u8; 16];

impl Scope {
    pub fn new_session<'a>(&'a self, model: &'a str) -> NewSession<'a> {
        let Scope { user, person, room, is_private, is_of_household, .. } = self;
        let (is_private, is_of_household) = (*is_private, *is_of_household);
        NewSession { user, person, room, is_private, is_of_household, model, update: None }
    }

    pub fn log_owner(&self) -> LogOwner {
        LogOwner { user: self.user.clone(), person: self.person.clone(), room: self.room.clone() }
    }

    pub fn own(&self, request: &mut ModelRequest) {
        request.user = Some(past_user(&self.user));
        request.reused_by = Some(self.reused_by());
        request.past_owner = Some(self.log_owner().past_owner());
        request.unsaved = self.is_private;
        request.trace_parent = self.trace_parent;
    }

    fn reused_by(&self) -> u64 {
        past_reused_by(&self.user, &self.person, self.is_private)
    }

    /// Digests the scope and `text`: equal texts of different persons, keys, secrets or speakers differ.
    pub fn digest(&self, text: &[u8]) -> ScopeDigest {
        let Scope { user, key, secret, person, room, is_private, is_of_household, name, named, .. } = self;
        let owner = format!("{:?}", (user, key, secret, person, room, (is_private, is_of_household), name, named));
        let hash = Sha256::new().chain_update((owner.len() as u64).to_le_bytes()).chain_update(owner);
        let whole = hash.chain_update(text).finalize();
        let mut half = ScopeDigest::default();
        half.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        half
    }

    pub fn name_last(&self, messages: &mut [Message]) {
        let last = messages.iter_mut().rfind(|message| message.role == MessageRole::User);
        if let (Some(last), Some(name)) = (last, &self.name) {
            last.name.get_or_insert_with(|| name.clone());
        }
    }

    pub fn name_persons(&self, mut bodies: Vec<ItemBody>) -> Vec<ItemBody> {
        for body in &mut bodies {
            if let ItemBody::Message { speaker: Some(NamedSpeaker { name, person }), .. } = body {
                *person = self.named.get(name).cloned();
            }
        }
        bodies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_of_a_persons_words_is_theirs() {
        let of = |person: &str, is_private: bool| {
            Scope { user: "home".into(), person: person.into(), is_private, ..Scope::default() }.reused_by()
        };
        assert_eq!(of("", false), past_user("home"));
        assert_eq!(of("anna", true), of("anna", true));
        let all = [of("", false), of("", true), of("anna", false), of("anna", true), of("ben", false)];
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
    }

    #[test]
    fn equal_requests_of_different_owners_have_different_digests() {
        let own = Scope { user: "local".into(), key: Some("k1".into()), person: "anna".into(), ..Scope::default() };
        let named = |name: &str| BTreeMap::from([("Anna".to_owned(), name.to_owned())]);
        let others = [
            Scope { user: "else".into(), ..own.clone() },
            Scope { key: Some("k2".into()), ..own.clone() },
            Scope { key: None, ..own.clone() },
            Scope { secret: Some("k1".into()), ..own.clone() },
            Scope { person: "ben".into(), ..own.clone() },
            Scope { person: String::new(), room: "anna".into(), ..own.clone() },
            Scope { room: "kitchen".into(), ..own.clone() },
            Scope { is_private: true, ..own.clone() },
            Scope { is_of_household: true, ..own.clone() },
            Scope { name: Some("Ben".into()), ..own.clone() },
            Scope { named: named("anna"), ..own.clone() },
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(own.digest(b"Good morning"), other.digest(b"Good morning"), "{at}");
        }
        assert_eq!(own.digest(b"Good morning"), own.clone().digest(b"Good morning"));
        assert_ne!(own.digest(b"Good morning"), own.digest(b"Good evening"));
    }
}

//! Vectors of messages in memory, because a question waits for them.

use crate::encode::encode_to_bytes;
use encoder::{Encoder, VectorRows};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Error, MessageVector, Store, UnindexedMessage};

// Messages that are encoded at once, and vectors that are read at once.
const ENCODED_AT_ONCE: u32 = 32;
const READ_AT_ONCE: u32 = 1024;

#[derive(Default)]
pub struct MessageIndex(RwLock<Vectors>);

#[derive(Default)]
struct Vectors {
    encoder: String,
    // Keys through which messages were encoded, and vectors were read.
    encoded: i64,
    read: i64,
    count: usize,
    of_owners: HashMap<(String, String), OwnerVectors>,
}

#[derive(Default)]
struct OwnerVectors {
    keys: Vec<i64>,
    rows: VectorRows,
}

impl MessageIndex {
    /// Encodes what was stated before this time and has no vector yet, and reads all vectors that are new.
    pub async fn update(
        &self,
        store: &Store,
        encoder: &Arc<Encoder>,
        before_ms: i64,
        most: usize,
    ) -> Result<(), Error> {
        let name = encoder.name();
        if self.0.read().encoder != name {
            *self.0.write() = Vectors { encoder: name.to_owned(), ..Vectors::default() };
        }
        loop {
            let behind = self.0.read().encoded;
            let unread = store.messages_without_vector(name, behind, before_ms, ENCODED_AT_ONCE).await?;
            let Some(last) = unread.last().map(|message| message.key) else { break };
            let (keys, texts): (Vec<i64>, Vec<String>) =
                unread.into_iter().map(|UnindexedMessage { key, text }| (key, text)).unzip();
            let vectors = encode_to_bytes(encoder, texts).await;
            store.put_message_vectors(name, keys.into_iter().zip(vectors).collect()).await?;
            self.0.write().encoded = last;
        }
        loop {
            let behind = self.0.read().read;
            let vectors = store.message_vectors(name, behind, READ_AT_ONCE).await?;
            if vectors.is_empty() {
                return Ok(());
            }
            self.0.write().add(vectors, encoder.width(), most);
        }
    }

    pub fn clear(&self) {
        *self.0.write() = Vectors::default();
    }

    pub fn nearest(&self, user: &str, person: &str, text: &[i8], most: usize) -> Vec<(i64, f32)> {
        let vectors = self.0.read();
        let Some(own) = vectors.of_owners.get(&(user.to_owned(), person.to_owned())) else { return Vec::new() };
        own.rows.nearest(text, most).into_iter().map(|(at, likeness)| (own.keys[at], likeness)).collect()
    }

    pub fn bytes_of(&self, user: &str, person: &str) -> usize {
        let vectors = self.0.read();
        vectors.of_owners.get(&(user.to_owned(), person.to_owned())).map_or(0, |own| own.rows.bytes())
    }
}

impl Vectors {
    fn add(&mut self, vectors: Vec<MessageVector>, width: usize, most: usize) {
        for MessageVector { key, user, person, vector } in vectors {
            self.read = key;
            if vector.len() == width {
                let own = self.of_owners.entry((user, person)).or_default();
                own.keys.push(key);
                own.rows.push(bytemuck::cast_slice(&vector));
                self.count += 1;
            }
        }
        // The one with the most gives its oldest.
        while self.count > most
            && let Some(own) = self.of_owners.values_mut().max_by_key(|own| own.keys.len())
        {
            let oldest = own.keys.len().div_ceil(ROOM_ONE_IN);
            own.keys.drain(..oldest);
            own.rows.take_first(oldest);
            self.count -= oldest;
        }
    }
}

// Of this many vectors of an owner, the oldest one makes room.
const ROOM_ONE_IN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(key: i64, person: &str) -> MessageVector {
        MessageVector { key, user: "home".to_owned(), person: person.to_owned(), vector: vec![key as u8, 1, 1, 1] }
    }

    #[test]
    fn a_person_has_their_own_and_the_oldest_make_room() {
        let index = MessageIndex::default();
        index.0.write().add((1..=40).map(|key| vector(key, "ann")).collect(), 4, 24);
        index.0.write().add((41..=44).map(|key| vector(key, "ben")).collect(), 4, 24);
        let keys = |person| {
            let mut keys: Vec<i64> =
                index.nearest("home", person, &[1, 0, 0, 0], 99).iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(keys("ben"), [41, 42, 43, 44]);
        let of_ann = keys("ann");
        assert!(of_ann.len() + 4 <= 24 && of_ann.len() > 12 && of_ann.last() == Some(&40), "{of_ann:?}");
        assert_eq!(index.nearest("other", "ann", &[1, 0, 0, 0], 9), []);
    }
}

//! A client that mirrors the conversation from the events alone, and checks that they fit each other.

use session::{Event, ItemBody, ResponseStatus};
use std::collections::{HashMap, HashSet};

pub struct Client {
    pub events: Vec<Event>,
    pub read: usize,
    pub mirror: Vec<String>,
    /// True if the client was not told all items, because it asked for no replay.
    pub blind: bool,
    pub said: HashMap<String, String>,
    /// Characters of each item up to the end of its last sentence.
    spoken: HashMap<String, usize>,
    open_responses: HashSet<String>,
    seen_responses: HashSet<String>,
}

impl Client {
    pub fn new(blind: bool) -> Client {
        Client {
            events: Vec::new(),
            read: 0,
            mirror: Vec::new(),
            blind,
            said: HashMap::new(),
            spoken: HashMap::new(),
            open_responses: HashSet::new(),
            seen_responses: HashSet::new(),
        }
    }

    pub fn hear(&mut self, event: Event) {
        if self.events.is_empty() {
            assert!(matches!(event, Event::Opened(_)), "{event:?}");
        }
        match &event {
            Event::ResponseStarted { response } => {
                assert!(self.seen_responses.insert(response.id.clone()), "twice: {event:?}");
                self.open_responses.insert(response.id.clone());
            }
            Event::ResponseDone { response } => {
                assert!(self.open_responses.remove(&response.id), "not open: {event:?}");
                assert!(response.usage.is_some() && response.status != ResponseStatus::InProgress, "{event:?}");
            }
            Event::Reported { .. } => {}
            event => {
                if let Some(id) = event.response_id() {
                    assert!(self.open_responses.contains(id), "outside its response: {event:?}");
                }
            }
        }
        self.place(&event);
        self.listen(&event);
        self.events.push(event);
    }

    fn place(&mut self, event: &Event) {
        match event {
            Event::ItemAdded { item, previous_item_id, .. } => self.insert(&item.id, previous_item_id, event),
            Event::ReplyStarted { item, place: Some(place), .. } => {
                self.insert(&item.id, &place.previous_item_id, event);
            }
            Event::ReplyDone { item, place: Some(place), .. } if !self.blind => {
                let at = self.mirror.iter().position(|known| *known == item.id).unwrap_or_else(|| panic!("{event:?}"));
                let before = at.checked_sub(1).map(|before| &self.mirror[before]);
                assert_eq!(place.previous_item_id.as_ref(), before, "{event:?}");
            }
            Event::ItemDeleted { item_id } => {
                let before = self.mirror.len();
                self.mirror.retain(|known| known != item_id);
                assert!(self.blind || self.mirror.len() + 1 == before, "{event:?}");
            }
            _ => {}
        }
    }

    fn insert(&mut self, id: &str, previous: &Option<String>, event: &Event) {
        assert!(!self.mirror.iter().any(|known| known == id), "twice: {event:?}");
        let at = match previous {
            None => 0,
            Some(before) => match self.mirror.iter().position(|known| known == before) {
                Some(index) => index + 1,
                None if self.blind => self.mirror.len(),
                None => panic!("the predecessor is unknown: {event:?}, {:?}", self.mirror),
            },
        };
        self.mirror.insert(at, id.to_owned());
    }

    fn listen(&mut self, event: &Event) {
        match event {
            // A reply that goes on begins with what was heard of it.
            Event::ReplyStarted { item, .. } if matches!(item.body, ItemBody::Message { .. }) => {
                self.said.insert(item.id.clone(), item.text());
                self.spoken.remove(&item.id);
            }
            Event::TextDelta { item_id, text, .. } => {
                self.said.entry(item_id.clone()).or_default().push_str(text);
            }
            Event::TextDone { item_id, text, .. } => assert_eq!(&self.said[item_id], text, "{event:?}"),
            Event::SentenceDone { item_id, sentence, .. } => {
                let (start, end) = (sentence.text_start, sentence.text_end);
                let said: String = self.said[item_id].chars().skip(start).take(end - start).collect();
                assert_eq!(said, sentence.text, "{event:?}");
                let before = self.spoken.insert(item_id.clone(), end).unwrap_or(0);
                assert!(before <= start, "{event:?} is told twice or out of order");
            }
            _ => {}
        }
    }

    pub fn check_no_open_response(&self) {
        assert!(self.open_responses.is_empty(), "still open: {:?}", self.open_responses);
    }
}

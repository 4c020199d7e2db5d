//! Budget of the text in memory: conversations, unread events and unfinished messages of all sessions and connections
//! together stay under the ceiling of the process.
//!
//! A holder within its even part is never refused because of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub struct HeldText {
    limit: u64,
    even_part: u64,
    held: Arc<AtomicU64>,
}

/// Share of one session or connection. Dropping it gives the bytes back.
#[derive(Debug)]
pub struct HeldShare {
    text: HeldText,
    bytes: u64,
}

impl HeldText {
    pub fn new(limit: u64, holders: usize) -> HeldText {
        HeldText { limit, even_part: limit / holders.max(1) as u64, held: Arc::default() }
    }

    pub fn share(&self) -> HeldShare {
        HeldShare { text: self.clone(), bytes: 0 }
    }

    pub fn taken(&self, bytes: usize) -> Option<HeldShare> {
        let mut share = self.share();
        share.take(bytes).then_some(share)
    }

    pub fn bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl HeldShare {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn has_room(&self, more: usize) -> bool {
        let more = more as u64;
        self.bytes + more <= self.text.even_part || self.text.bytes() + more <= self.text.limit
    }

    pub fn is_uneven(&self) -> bool {
        self.bytes > self.text.even_part
    }

    pub fn take(&mut self, more: usize) -> bool {
        let has_room = self.has_room(more);
        if has_room {
            self.set(self.bytes + more as u64);
        }
        has_room
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes as u64));
    }

    pub fn set(&mut self, bytes: u64) {
        let held = &self.text.held;
        match bytes >= self.bytes {
            true => held.fetch_add(bytes - self.bytes, Ordering::Relaxed),
            false => held.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_holds_all_leaves_the_others_their_even_part() {
        let text = HeldText::new(1000, 10);
        let (mut greedy, mut modest) = (text.share(), text.share());
        assert!(greedy.take(1000) && !greedy.take(1));
        assert!(modest.take(60) && modest.take(40) && !modest.take(1));
        assert_eq!(text.bytes(), 1100);
        greedy.give_back(700);
        assert!(modest.take(500) && !modest.take(101));
        drop((greedy, modest));
        assert_eq!(text.bytes(), 0);
    }

    #[test]
    fn what_is_set_counts_against_others() {
        let text = HeldText::new(1000, 10);
        let (mut large, mut other) = (text.share(), text.share());
        large.set(5000);
        assert!(!large.has_room(1) && other.take(100) && !other.take(1));
        large.set(0);
        assert!(other.take(900));
    }
}

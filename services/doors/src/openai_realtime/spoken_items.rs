//! Items and responses of a connection that were said and not written, as far as they are remembered.

use std::collections::{HashSet, VecDeque};

#[derive(Clone, Debug, Default)]
pub struct SpokenItems {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl SpokenItems {
    /// Remembers an id, and forgets the oldest beyond `most`.
    pub fn add(&mut self, id: &str, most: usize) {
        if self.known.insert(id.to_owned()) {
            self.order.push_back(id.to_owned());
        }
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    pub fn has(&self, id: &str) -> bool {
        self.known.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut items = SpokenItems::default();
        ["a", "b", "a", "c"].iter().for_each(|id| items.add(id, 2));
        assert!(!items.has("a") && items.has("b") && items.has("c"));
    }
}

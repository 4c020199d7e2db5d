//! Facts in the prompts of a session. The session keeps their ids, and their words come from the store, so that a
//! forgotten fact leaves the prompts.

use parking_lot::RwLock;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockFacts {
    pub ids: Vec<String>,
    pub text: String,
}

/// Facts that a session tells now. Its task and its compactor read them for each prompt; a copy in a waiting request
/// could tell a fact that was forgotten since.
pub struct FactBlock(RwLock<Arc<BlockFacts>>);

impl FactBlock {
    pub fn new(told: BlockFacts) -> FactBlock {
        FactBlock(RwLock::new(Arc::new(told)))
    }

    pub fn now(&self) -> Arc<BlockFacts> {
        self.0.read().clone()
    }

    pub fn set(&self, told: BlockFacts) {
        *self.0.write() = Arc::new(told);
    }
}

pub fn owners(person: &str) -> impl Iterator<Item = &str> {
    [person, ""].into_iter().take(if person.is_empty() { 1 } else { 2 })
}

//! The facts that the prompts of a session tell. The session keeps their ids; their words come from the store, so that none outlives
//! its fact.

use parking_lot::RwLock;
use std::sync::Arc;

/// Facts in the order of the prompt, and the text that tells them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockFacts {
    pub ids: Vec<String>,
    /// The note behind the instructions. Empty: nothing is remembered.
    pub text: String,
}

/// The facts that a session tells now. Its task and its compactor read them whenever they make a prompt: a copy in a request
/// that waits would tell on what was forgotten meanwhile.
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

/// Returns the owners of the facts that a person's conversation tells: the person and the home.
pub fn owners(person: &str) -> impl Iterator<Item = &str> {
    [person, ""].into_iter().take(if person.is_empty() { 1 } else { 2 })
}

//! The tokens that end a reply: those that files name, and the family's. A model that writes the one that its file leaves out
//! has ended all the same.

pub(crate) fn sorted(mut tokens: Vec<u32>) -> Vec<u32> {
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

//! The tokens that end an answer.

/// The family ends a turn with the first and a text with the second. Files often name only one of them as their end
/// token, and a model that writes the other one has ended all the same.
const FAMILY_ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

pub(crate) fn is_family_end(token: &str) -> bool {
    FAMILY_ENDS.contains(&token)
}

pub(crate) fn sorted(mut tokens: Vec<u32>) -> Vec<u32> {
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

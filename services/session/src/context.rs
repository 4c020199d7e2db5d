//! Context of a prompt: the part of it besides the newest items.

use crate::vocabulary::Message;
use std::collections::HashSet;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Summary and pins of the covered items, in one message of a tool, because they are material and not instructions.
    pub preface: Vec<Message>,
    /// Last covered item. `None`: the prompt holds all items.
    pub covered_through: Option<String>,
    /// Tool results whose text left the prompt because it is stale. Their calls stay.
    pub trimmed: HashSet<String>,
    pub recall: bool,
    /// Notes that change from turn to turn (the time, the room), placed as late as possible.
    pub notes: Vec<String>,
}

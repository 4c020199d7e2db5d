//! Messages that are near a text by their meaning. Whose a message is, the store says at each question.

use crate::heavy;
use crate::prompts::RecallPlace;
use store::StatedMessage;

// Messages to look at for each one wanted: some were forgotten since their vectors were read.
const LOOKED_AT_PER_HIT: usize = 2;
// Messages that may be missing before more are looked up, which takes as long again.
const NEARLY_ALL: usize = 4;

/// Finds what this person stated that is nearest to a text, with the likeness, nearest first.
pub async fn near_messages(place: RecallPlace<'_>, text: &[i8], most: usize) -> Vec<(f32, StatedMessage)> {
    let Some(person) = place.person else { return Vec::new() };
    let index = place.encoding.messages();
    let work = index.bytes_of(place.user, person);
    let near = heavy::run(work, || index.nearest(place.user, person, text, most * LOOKED_AT_PER_HIT)).await;
    let mut found = Vec::with_capacity(most);
    for near in near.chunks(most.max(1)) {
        let keys: Vec<i64> = near.iter().map(|(key, _)| *key).collect();
        let mut stated = place.store.stated(place.user, person, &keys).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what was said could not be looked up by meaning");
            Vec::new()
        });
        let message = |(key, likeness): &(i64, f32)| {
            let at = stated.iter().position(|message| message.key == *key)?;
            Some((*likeness, stated.swap_remove(at)))
        };
        found.extend(near.iter().filter_map(message));
        if found.len() + NEARLY_ALL >= most {
            break;
        }
    }
    found.truncate(most);
    found
}

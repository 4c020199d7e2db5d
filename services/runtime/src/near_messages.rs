//! Messages that are near a text by their meaning. Whose a message is, the store says at each question.

use crate::heavy;
use crate::prompts::RecallPlace;
use store::StatedMessage;

// Messages to look at for each one wanted: some were forgotten since their vectors were read.
const LOOKED_AT_PER_HIT: usize = 2;

/// Finds what this person stated that is nearest to a text, with the likeness, nearest first.
pub async fn near_messages(place: RecallPlace<'_>, text: &[i8], most: usize) -> Vec<(f32, StatedMessage)> {
    let Some(person) = place.person else { return Vec::new() };
    let index = place.encoding.messages();
    let work = index.bytes_of(place.user, person);
    let near = heavy::run(work, || index.nearest(place.user, person, text, most * LOOKED_AT_PER_HIT)).await;
    let keys: Vec<i64> = near.iter().map(|(key, _)| *key).collect();
    let mut stated = place.store.stated(place.user, person, &keys).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "what was said could not be looked up by meaning");
        Vec::new()
    });
    let message = |(key, likeness): (i64, f32)| {
        let at = stated.iter().position(|message| message.key == key)?;
        Some((likeness, stated.swap_remove(at)))
    };
    near.into_iter().filter_map(message).take(most).collect()
}

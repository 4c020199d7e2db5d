//! Vectors of sentences, computed beside the workers.

use encoder::{EncodedText, Encoder, rounded};
use std::sync::Arc;
use tokio::task::spawn_blocking;

pub async fn encode(encoder: &Arc<Encoder>, sentences: Vec<String>) -> Vec<Vec<f32>> {
    encode_tokens(encoder, sentences).await.into_iter().map(|encoded| encoded.vector).collect()
}

pub async fn encode_tokens(encoder: &Arc<Encoder>, sentences: Vec<String>) -> Vec<EncodedText> {
    let encoder = encoder.clone();
    let encoded = spawn_blocking(move || sentences.iter().map(|sentence| encoder.encode_tokens(sentence)).collect());
    encoded.await.unwrap_or_default()
}

/// Returns the vectors as the store keeps them.
pub async fn encode_to_bytes(encoder: &Arc<Encoder>, sentences: Vec<String>) -> Vec<Vec<u8>> {
    encode(encoder, sentences).await.iter().map(|vector| bytemuck::cast_vec(rounded(vector))).collect()
}

//! Vectors of sentences, computed beside the workers.

use encoder::Encoder;
use std::sync::Arc;
use tokio::task::spawn_blocking;

pub async fn encode(encoder: &Arc<Encoder>, sentences: Vec<String>) -> Vec<Vec<f32>> {
    let encoder = encoder.clone();
    let vectors = spawn_blocking(move || sentences.iter().map(|sentence| encoder.encode(sentence)).collect());
    vectors.await.unwrap_or_default()
}

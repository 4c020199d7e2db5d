//! Fingerprint that tells one model's numbers from another's, without reading all of them.
//!
//! SHA-256 over, in this order: a tag with a version; the bytes that describe the model (GGUF: all bytes before the
//! tensors of each part; safetensors: config.json and the header of each shard), each with its length; and for each
//! tensor in the order of their names, its name and three samples of its bytes, from the start, the middle and the end.
//! Two models trained apart differ in every tensor, and so in the samples. An attacker can
//! change bytes between the samples: the fingerprint keys caches, it does not authenticate.

use sha2::{Digest, Sha256};

use crate::tensors::Tensors;

const TAG: &[u8] = b"reprise weights 1";
const SAMPLE: usize = 128;

pub(crate) fn fingerprint<'a>(descriptions: impl Iterator<Item = &'a [u8]>, tensors: &Tensors) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(TAG);
    for description in descriptions {
        with_length(&mut hash, description);
    }
    for (name, tensor) in tensors.iter() {
        with_length(&mut hash, name.as_bytes());
        let data = &tensor.data[..];
        hash.update((data.len() as u64).to_le_bytes());
        let last = data.len().saturating_sub(SAMPLE);
        for start in [0, last / 2, last] {
            hash.update(&data[start..data.len().min(start + SAMPLE)]);
        }
    }
    hash.finalize().into()
}

fn with_length(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

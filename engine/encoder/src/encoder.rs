//! An encoder: a folder's tokenizer and network, ready to read sentences.

use crate::Error;
use crate::config::{Config, Pooling, pooling};
use crate::network::{EncoderNetwork, Scratch};
use crate::tensors::Tensors;
use crate::vector::to_length_one;
use crate::words::TokenizerOfWords;
use kernels::cpu::Cpu;
use parking_lot::Mutex;
use std::path::Path;

pub struct Encoder {
    cpu: Cpu,
    tokenizer: TokenizerOfWords,
    network: EncoderNetwork,
    pooling: Pooling,
    scratch: Mutex<Scratch>,
    name: String,
}

/// Vectors of length one: of a whole text, and of each of its tokens, without those that the tokenizer puts around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedText {
    pub vector: Vec<f32>,
    pub tokens: Vec<f32>,
}

// Tokens of a text that are read, its first ones: sentences have a dozen.
const MOST_TOKENS: usize = 128;
// Bytes of a text that are cut into tokens.
const MOST_BYTES: usize = 4096; // not a window: bytes

impl Encoder {
    /// Reads an encoder. `threads`: as many as its products take, the caller's own included.
    pub fn open(folder: &Path, threads: usize) -> Result<Encoder, Error> {
        let config = Config::read(folder)?;
        let most = MOST_TOKENS.min(config.max_position_embeddings);
        let tokenizer = TokenizerOfWords::read(&folder.join("tokenizer.json"), config.vocab_size, most)?;
        let pooling = pooling(folder)?;
        let mut tensors = Tensors::open(folder.join("model.safetensors"))?;
        let network = EncoderNetwork::read(config, &mut tensors)?;
        let name = format!("{:08x}-{}", tensors.checksum(), network.config.hidden_size);
        Ok(Encoder { cpu: Cpu::new(threads), tokenizer, network, pooling, scratch: Mutex::default(), name })
    }

    /// Name of the weights: vectors of another name mean something else.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of values of a vector.
    pub fn width(&self) -> usize {
        self.network.config.hidden_size
    }

    /// Returns a vector of length one. Of a long text its begin counts.
    pub fn encode(&self, text: &str) -> Vec<f32> {
        self.encode_tokens(text).vector
    }

    pub fn encode_tokens(&self, text: &str) -> EncodedText {
        let text = &text[..text.floor_char_boundary(MOST_BYTES)];
        let mut vector = vec![0.0; self.width()];
        let mut tokens = Vec::new();
        let Some(encoding) = self.tokenizer.encode(text) else { return EncodedText { vector, tokens } };
        let mut scratch = self.scratch.lock();
        let rows = match self.network.run(&self.cpu, encoding.get_ids(), &mut scratch) {
            Ok(rows) => rows.chunks_exact(vector.len()),
            Err(error) => {
                tracing::warn!(%error, "the sentence encoder's file cannot be read any more: a sentence has no meaning");
                return EncodedText { vector, tokens };
            }
        };
        let pooled = if self.pooling == Pooling::First { 1 } else { rows.len() };
        for row in rows.clone().take(pooled) {
            vector.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        to_length_one(&mut vector);
        for (row, _) in rows.zip(encoding.get_special_tokens_mask()).filter(|(_, is_special)| **is_special == 0) {
            let start = tokens.len();
            tokens.extend_from_slice(row);
            to_length_one(&mut tokens[start..]);
        }
        EncodedText { vector, tokens }
    }
}

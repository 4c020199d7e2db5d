//! An encoder: a folder's tokenizer and network, ready to read sentences.

use crate::Error;
use crate::config::{Config, Pooling, pooling};
use crate::network::{EncoderNetwork, Scratch};
use crate::tensors::Tensors;
use crate::vector::to_length_one;
use kernels::cpu::Cpu;
use parking_lot::Mutex;
use std::path::Path;
use tokenizers::{Tokenizer, TruncationParams};

pub struct Encoder {
    cpu: Cpu,
    tokenizer: Tokenizer,
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
        let path = folder.join("tokenizer.json");
        let file = std::fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let wrong = |error: tokenizers::Error| Error::form(&path, error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(file).map_err(wrong)?;
        let max_length = MOST_TOKENS.min(config.max_position_embeddings);
        let truncation = TruncationParams { max_length, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(wrong)?;
        tokenizer.with_padding(None);
        if let Some(id) = tokenizer.get_vocab(true).values().max().filter(|id| **id as usize >= config.vocab_size) {
            return Err(Error::form(&path, format!("token {id} is beyond the network's {}", config.vocab_size)));
        }
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
        let Ok(encoding) = self.tokenizer.encode_fast(text, true) else { return EncodedText { vector, tokens } };
        let mut scratch = self.scratch.lock();
        let rows = self.network.run(&self.cpu, encoding.get_ids(), &mut scratch).chunks_exact(vector.len());
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

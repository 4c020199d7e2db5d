//! Sizes of a network, from the files beside its weights.

use crate::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    pub model_type: String,
    pub hidden_act: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layer_norm_eps: f32,
    pub max_position_embeddings: usize,
    pub num_attention_heads: usize,
    pub num_hidden_layers: usize,
    pub vocab_size: usize,
    #[serde(default = "absolute")]
    pub position_embedding_type: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    Mean,
    First,
}

#[derive(Deserialize)]
struct PoolingConfig {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
}

impl Config {
    pub fn read(folder: &Path) -> Result<Config, Error> {
        let path = folder.join("config.json");
        let config: Config = json(&path)?;
        config.check().map_err(|what| Error::form(&path, what))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        for (key, found, known) in [
            ("model_type", &self.model_type, "bert"),
            ("hidden_act", &self.hidden_act, "gelu"),
            ("position_embedding_type", &self.position_embedding_type, "absolute"),
        ] {
            if found != known {
                return Err(format!("{key} is {found:?}, and only {known:?} is known"));
            }
        }
        for (key, value, most) in [
            ("hidden_size", self.hidden_size, 4096),               // not a window: columns
            ("intermediate_size", self.intermediate_size, 16_384), // not a window: columns
            ("max_position_embeddings", self.max_position_embeddings, 1 << 16), // not a window: rows of a table
            ("num_attention_heads", self.num_attention_heads, 256),
            ("num_hidden_layers", self.num_hidden_layers, 128),
            ("vocab_size", self.vocab_size, 1 << 21),
        ] {
            if value == 0 || value > most {
                return Err(format!("{key} is {value}; it is from 1 to {most}"));
            }
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return Err("hidden_size is no multiple of num_attention_heads".to_owned());
        }
        if !(0.0..1.0).contains(&self.layer_norm_eps) {
            return Err(format!("layer_norm_eps is {}; it is from 0 to 1", self.layer_norm_eps));
        }
        Ok(())
    }
}

/// Reads how the vectors of a sentence's tokens become one.
pub fn pooling(folder: &Path) -> Result<Pooling, Error> {
    let path = folder.join("1_Pooling").join("config.json");
    if !path.exists() {
        return Ok(Pooling::Mean);
    }
    match json(&path)? {
        PoolingConfig { pooling_mode_mean_tokens: true, .. } => Ok(Pooling::Mean),
        PoolingConfig { pooling_mode_cls_token: true, .. } => Ok(Pooling::First),
        _ => Err(Error::form(&path, "neither the mean nor the first token is pooled")),
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let file = std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    serde_json::from_slice(&file).map_err(|error| Error::form(path, error.to_string()))
}

fn absolute() -> String {
    "absolute".to_owned()
}

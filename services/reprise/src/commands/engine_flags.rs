//! Flags of the engine that `serve` and `run` share, with llama.cpp's names.

use settings::Flag;

#[derive(Debug, clap::Args)]
pub struct EngineFlags {
    /// Window in tokens, instead of the preset's
    #[arg(short, long, value_name = "TOKENS")]
    pub ctx_size: Option<u32>,
    /// Layers on the GPU: a number, auto or all; 0 leaves all to the CPU (also -ngl)
    #[arg(long, visible_alias = "n-gpu-layers", value_name = "LAYERS", value_parser = gpu_layers)]
    gpu_layers: Option<Flag>,
    /// Format of cached keys: f32, f16, bf16, q8_0, q4_0, tq4 or tq3 (also -ctk)
    #[arg(long, value_name = "FORMAT", value_parser = cache_type)]
    cache_type_k: Option<&'static str>,
    /// Format of cached values (also -ctv)
    #[arg(long, value_name = "FORMAT", value_parser = cache_type)]
    cache_type_v: Option<&'static str>,
    /// Tokens of thought: 0 does not think, -1 thinks without a limit
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = reasoning_budget)]
    reasoning_budget: Option<String>,
    /// Changes nothing: the model's own template is always used
    #[arg(long)]
    jinja: bool,
}

impl EngineFlags {
    /// Returns the keys of the configuration that the flags set.
    pub fn flags(&self) -> Vec<Flag> {
        let flags = [
            self.ctx_size.map(|tokens| Flag::new("--ctx-size", "model.ctx_size", tokens)),
            self.gpu_layers.clone(),
            self.cache_type_k.map(|format| Flag::new("--cache-type-k", "preset.kv.k", format)),
            self.cache_type_v.map(|format| Flag::new("--cache-type-v", "preset.kv.v", format)),
            self.reasoning_budget.as_ref().map(|budget| Flag::new("--reasoning-budget", "preset.thinking", budget)),
        ];
        flags.into_iter().flatten().collect()
    }
}

/// Most layers that the configuration takes: more than any model has.
const ALL_LAYERS: u32 = 1000;

fn gpu_layers(word: &str) -> Result<Flag, String> {
    let layers = |layers: &str| Flag::new("--gpu-layers", "engine.gpu_layers", layers);
    match (word, word.parse::<u32>()) {
        (_, Ok(0)) => Ok(Flag::new("--gpu-layers", "engine.device", "cpu")),
        (_, Ok(most)) => Ok(layers(&most.min(ALL_LAYERS).to_string())),
        ("all", _) => Ok(layers(&ALL_LAYERS.to_string())),
        ("auto", _) => Ok(layers("auto")),
        _ => Err("use a number of layers, auto or all".to_owned()),
    }
}

/// Returns the configuration's word for a format.
fn cache_type(word: &str) -> Result<&'static str, String> {
    match word {
        "f32" => Ok("f32"),
        "f16" => Ok("f16"),
        "bf16" => Ok("bf16"),
        "q8_0" | "q8" => Ok("q8"),
        "q4_0" | "q4" => Ok("q4"),
        "tq4" => Ok("tq4"),
        "tq3" => Ok("tq3"),
        _ => Err("use f32, f16, bf16, q8_0, q4_0, tq4 or tq3".to_owned()),
    }
}

/// Returns the configuration's word for a limit of thought.
fn reasoning_budget(word: &str) -> Result<String, String> {
    match (word, word.parse::<u32>()) {
        ("-1", _) => Ok("on".to_owned()),
        (_, Ok(0)) => Ok("off".to_owned()),
        (_, Ok(tokens)) => Ok(tokens.to_string()),
        _ => Err("use a number of tokens; 0 does not think, -1 thinks without a limit".to_owned()),
    }
}

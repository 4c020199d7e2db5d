use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(#[from] engine::Error),
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error("{name}: no file, folder or preset of that name; presets are {presets}")]
    NoSuchModel { name: String, presets: String },
    #[error(
        "preset {preset} wants the model file {}, which is not there; {advice}, or name another model",
        file.display()
    )]
    NoModelFile { preset: String, file: PathBuf, advice: String },
    #[error(
        "no model to talk with: preset {preset} names none and there is none in {}; put a GGUF file or a Hugging Face \
         folder there, or name one with --model",
        folder.display()
    )]
    NoModel { preset: String, folder: PathBuf },
    #[error("cannot unpack the built-in model to {}: {source}; name another folder with [model] models_dir", file.display())]
    Unpack { file: PathBuf, source: std::io::Error },
    #[error("the model {} has a window of {native_ctx} tokens, more than can be counted; is the file damaged?", file.display())]
    Window { file: PathBuf, native_ctx: usize },
    #[error(transparent)]
    Memory(#[from] Box<NoRoom>),
    #[error("the system gives no thread for the engine: {0}")]
    Thread(std::io::Error),
    #[error("upstream {url}: {why}")]
    Upstream { url: String, why: String },
    #[error("upstream.key_env names {name}, and there is no such environment variable: set it, or leave the key out")]
    NoKey { name: String },
}

/// Conversation of the chosen window that would pass the memory ceiling.
#[derive(Debug, thiserror::Error)]
#[error(
    "the window of preset {preset} does not fit: {ctx_size} tokens need {needed} beside the {fixed} of weights and \
     buffers, and {key} leaves {left}; {advice}"
)]
pub struct NoRoom {
    pub preset: String,
    pub ctx_size: u32,
    pub needed: String,
    pub key: &'static str,
    pub fixed: String,
    pub left: String,
    pub advice: String,
    pub fits_tokens: u32,
}

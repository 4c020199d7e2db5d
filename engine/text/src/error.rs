#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("tokenizer.json is not valid: {0}")]
    TokenizerJson(serde_json::Error),
    #[error("the tokenizer's {part} is {found}, but only {supported} is supported")]
    UnsupportedTokenizer { part: &'static str, found: String, supported: &'static str },
    #[error("unknown pre-tokenizer {found:?} (tokenizer.ggml.pre), known are {known}")]
    UnknownPreTokenizer { found: String, known: String },
    #[error("the pre-tokenizer's pattern {pattern:?} cannot be used: {why}")]
    Pattern { pattern: String, why: String },
    #[error("damaged vocabulary: {0}")]
    Vocabulary(String),
    #[error("the chat template does not parse: {0}")]
    TemplateSyntax(String),
    #[error("the chat template refuses these messages: {0}")]
    Refused(String),
    #[error("the chat template fails on these messages: {0}")]
    Render(String),
    #[error("the request is not valid: {0}")]
    Request(String),
}

//! Errors of grammars that cannot be used, and of tokens that a grammar refuses.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error("the JSON schema is not supported at {part}: {why}")]
    Schema { part: String, why: String },
    #[error("the schema of tool {tool:?} is not supported at {part}: {why}")]
    Tool { tool: String, part: String, why: String },
    #[error("there is no tool {name:?}; the request's tools are: {known}")]
    UnknownTool { name: String, known: String },
    #[error("a tool call is asked for but the request has no tools; send some")]
    NoTools,
    #[error("the vocabulary has no token {name}; this model cannot write replies of this format")]
    MissingToken { name: &'static str },
    #[error("the vocabulary cannot be used for grammars: {why}")]
    Vocabulary { why: String },
    #[error("token {token} ({text:?}) is not allowed here by the grammar")]
    Rejected { token: u32, text: String },
    #[error("the reply cannot follow the grammar: {why}; simplify the schema")]
    Failed { why: String },
}

const BEYOND: &str = "a number or a length in it is beyond what can be promised: choose a smaller one";

const NOTHING_FITS: &str = "no reply can fit it; it may refer to nothing but itself";

/// Returns an error of llguidance without the dump of its state.
pub fn why(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let end = ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"].iter().filter_map(|mark| text.find(mark)).min();
    let text = text[..end.unwrap_or(text.len())].trim();
    // The library panicked and caught it itself, for example at a number at the end of its range.
    if text.starts_with("panic") {
        return BEYOND.to_string();
    }
    if text.contains("NoExtensionBias") { NOTHING_FITS.to_string() } else { text.to_string() }
}

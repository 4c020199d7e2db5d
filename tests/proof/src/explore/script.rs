use super::kept::Kept;
use session::machine::{GenerationId, Machine, MachineLimits, Start};
use session::{
    ConfigUpdate, Context, ConversationChoice, GenerationOptions, MaxTokens, ResponseRequest, SessionConfig, ToolChoice,
};

/// Pieces of a reply. Each reply has other words, so that none is taken for another.
pub const PIECES: usize = 2;

pub fn words(life: u8, generation: GenerationId, piece: usize) -> String {
    format!("{}{}{} ", ["a", "b", "c"][usize::from(life)], generation.0, ["x", "y"][piece])
}

pub fn script(life: u8, generation: GenerationId) -> String {
    (0..PIECES).map(|piece| words(life, generation, piece)).collect()
}

pub fn request() -> ResponseRequest {
    ResponseRequest {
        conversation: ConversationChoice::Auto,
        input: None,
        config: ConfigUpdate::default(),
        options: GenerationOptions::default(),
        metadata: None,
        of_request: None,
    }
}

pub fn context(covered_through: Option<String>) -> Context {
    Context { covered_through, ..Context::default() }
}

/// Time without new words after which the prompt warms, and then a reply begins early.
const SPECULATE_MS: u64 = 100;
const EARLY_MS: u64 = 150;

pub fn machine(life: u8, kept: &Kept, begins_early: bool) -> Machine {
    Machine::new(Start {
        session_id: "sess".to_owned(),
        conversation_id: "conv".to_owned(),
        model: "model".to_owned(),
        config: SessionConfig {
            persona: String::new(),
            instructions: String::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: MaxTokens::Unlimited,
            temperature: None,
            reasoning_effort: None,
            parallel_tool_calls: true,
        },
        items: kept.items.clone(),
        leading: 0,
        context: context(kept.covered_through.clone()),
        limits: MachineLimits {
            session_items: 100,
            told_items: 1,
            session_bytes: 1 << 20,
            responses_beside: 1,
            outbox_steps: 1000,
            speculate_ms: begins_early.then_some(SPECULATE_MS),
            early_ms: begins_early.then_some(EARLY_MS),
            recalls: 0,
            resume_ms: 1000,
        },
        words_per_minute: 150,
        backchannels: Vec::new(),
        id_seed: u64::from(life) + 1,
    })
}

//! Names in the spans and numbers that a collector gets: OpenTelemetry's for generative AI, and ours where it has none.

pub const PROVIDER: &str = "gen_ai.provider.name";
pub const OPERATION: &str = "gen_ai.operation.name";
pub const AGENT: &str = "gen_ai.agent.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const RESPONSE: &str = "gen_ai.response.id";
pub const MODEL: &str = "gen_ai.request.model";
pub const MOST_TOKENS: &str = "gen_ai.request.max_tokens";
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const REUSED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const FINISH: &str = "gen_ai.response.finish_reasons";
pub const TOKEN_TYPE: &str = "gen_ai.token.type";
pub const TOOL: &str = "gen_ai.tool.name";
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const ERROR: &str = "error.type";
pub const PRIORITY: &str = "reprise.priority";
pub const COMPUTED_REASON: &str = "reprise.computed.reason";
pub const STATUS: &str = "reprise.response.status";

// The provider's and the agent's.
pub const REPRISE: &str = "reprise";

// Operations, with which the names of their spans begin.
pub const CHAT: &str = "chat";
pub const TURN: &str = "invoke_agent";
pub const CALL: &str = "execute_tool";

// Parts of an answer and of a turn.
pub const QUEUE: &str = "queue";
pub const PREFILL: &str = "prefill";
pub const FIRST_TOKEN: &str = "first token";
pub const DECODE: &str = "decode";
pub const STORE: &str = "store";

pub const ANSWER_SECONDS: &str = "gen_ai.server.request.duration";
pub const FIRST_TOKEN_SECONDS: &str = "gen_ai.server.time_to_first_token";
pub const TOKEN_SECONDS: &str = "gen_ai.server.time_per_output_token";
pub const TOKENS: &str = "gen_ai.client.token.usage";

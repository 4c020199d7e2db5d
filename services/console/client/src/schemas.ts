// Written by `npm run types` from the server's schema (/openapi.json). Do not edit.
// Over 600 lines because every event of the protocol is here.

export type Answer = (WindowAnswer | TurnsAnswer | ServerState)

/**
 * Tokens of the session's next prompt. The parts add up to `total_tokens`.
 */
export interface WindowAnswer {
object: "session.window"
session_id: string
ctx_size: number
reply_reserve_tokens: number
instructions_tokens: number
tools_tokens: number
facts_tokens: number
summary_tokens: number
pins_tokens: number
turns_tokens: number
marks_tokens: number
total_tokens: number
/**
 * Above zero where an upstream's tokens are an estimate.
 */
margin_tokens: number
/**
 * Tokens from which on the next silence brings a summary.
 */
soft_tokens: number
}
export interface TurnsAnswer {
object: "list"
data: {
turn: number
response_id: (string | null)
preset: string
arm: (string | null)
ctx_size: number
fill_tokens: number
reused_tokens: number
/**
 * Reused tokens that were read ahead since the last turn, while no user waited.
 */
warm_tokens: number
computed_tokens: number
computed_reason: (string | null)
output_tokens: number
queue_ms: number
prefill_ms: number
first_token_ms: (number | null)
first_sentence_ms: (number | null)
total_ms: number
barged_in: boolean
/**
 * The user's thumb: 1, -1, 0 or null.
 */
feedback: (number | null)
created_at_ms: number
}[]
has_more: boolean
before: (number | null)
}
export interface ServerState {
version: string
model: string
/**
 * Processor, GPU or other server that computes.
 */
device: string
preset: string
ctx_size: number
ready: boolean
asleep: boolean
trouble: (string | null)
store_trouble: (string | null)
notes: string[]
requests: {
[k: string]: number
}
/**
 * Memory in use by its kind, in bytes.
 */
memory_bytes: {
[k: string]: number
}
/**
 * Memory as it was planned at the start, in bytes.
 */
planned_bytes: {
[k: string]: number
}
/**
 * States of pasts that a turn can go on from, by where they are: `memory`, `disk`.
 */
states: {
[k: string]: {
states: number
bytes: number
}
}
connections: number
sessions_in_memory: number
/**
 * Counts since the start, as `/metrics` names them.
 */
samples: {
[k: string]: number
}
}

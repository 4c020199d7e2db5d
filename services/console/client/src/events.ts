// Written by `npm run types` from the server's schema (/v1/realtime/schema.json). Do not edit.
// Over 600 lines because every event of the protocol is here.

/**
 * OpenAI Realtime (GA) in text. Fields that a schema does not name are ignored in client events and never sent in server events. Events marked x-extension are for connections that opted in with ?extensions=reprise or session.extensions.
 */
export type RealtimeEvent = (ClientEvent | ServerEvent)
export type ClientEvent = (SessionUpdate | ConversationItemCreate | ConversationItemRetrieve | ConversationItemTruncate | ConversationItemDelete | ResponseCreate | ResponseCancel | ResponseStopThinking | ResponseResume | InputAudioBufferAppend | InputAudioBufferCommit | InputAudioBufferClear | InputTextBufferUpdate | InputTextBufferCommit | InputTextBufferClear)
export type ModalityName = ("text" | "audio")
export type ToolChoiceView = (ToolChoiceWord | ToolName)
export type ToolChoiceWord = ("auto" | "none" | "required")
export type ToolName = {
type: "function"
name: string
}
export type MaxTokensView = (number | "inf")
export type Effort = ("none" | "minimal" | "low" | "medium" | "high" | "xhigh")
export type NewItemFields = ((NewMessage & {
type: "message"
}) | (NewCall & {
type: "function_call"
}) | (NewCallOutput & {
type: "function_call_output"
}))
export type NewRole = ("user" | "assistant" | "system" | "developer")
export type InputFields = ((NewMessage & {
type: "message"
}) | (NewCall & {
type: "function_call"
}) | (NewCallOutput & {
type: "function_call_output"
}) | {
type: "item_reference"
id: string
})
export type ServerEvent = (Error | SessionCreated | SessionUpdated | ConversationItemAdded | ConversationItemDone | ConversationItemRetrieved | ConversationItemTruncated | ConversationItemDeleted | InputAudioBufferCleared | InputAudioBufferCommitted | InputAudioBufferSpeechStarted | InputAudioBufferSpeechStopped | InputAudioBufferTimeoutTriggered | ConversationItemInputAudioTranscriptionDelta | ConversationItemInputAudioTranscriptionCompleted | ConversationItemInputAudioTranscriptionFailed | ResponseCreated | ResponseDone | ResponseOutputItemAdded | ResponseOutputItemDone | ResponseContentPartAdded | ResponseContentPartDone | ResponseOutputTextDelta | ResponseOutputTextDone | ResponseOutputAudioDelta | ResponseOutputAudioDone | ResponseOutputAudioTranscriptDelta | ResponseOutputAudioTranscriptDone | ResponseFunctionCallArgumentsDelta | ResponseFunctionCallArgumentsDone | RateLimitsUpdated | ResponseOutputTextLogprobs | ResponseSentenceDone | ResponseReasoningDelta | ResponseThinkingStopped | ResponseRecallDone | ContextUpdated | CompactionStarted | CompactionCompleted | CompactionDropped | CompactionFailed | PinRefused | MemoryLearned | MemoryUnsure | TurnReport)
export type ItemView = ({
id: string
object: "realtime.item"
status: ("in_progress" | "completed" | "incomplete")
type: "message"
role: ("system" | "user" | "assistant")
content: ItemPart[]
/**
 * Name of the speaker, if the client gave one.
 */
speaker?: (string | null)
} | {
id: string
object: "realtime.item"
status: ("in_progress" | "completed" | "incomplete")
type: "function_call"
call_id: string
name: string
arguments: string
} | {
id: string
object: "realtime.item"
status: ("in_progress" | "completed" | "incomplete")
type: "function_call_output"
call_id: string
output: string
})
export type ItemPart = ({
type: "input_text"
text: string
} | {
type: "output_text"
text: string
} | {
type: "input_audio"
transcript: (string | null)
} | {
type: "output_audio"
transcript: string
})
export type TranscriptionUsage = ({
type: "duration"
seconds: number
} | {
type: "tokens"
input_tokens: number
output_tokens: number
total_tokens: number
})
export type DetailsView = ({
type: "cancelled"
reason: ("client_cancelled" | "turn_detected")
} | {
type: "incomplete"
reason: "max_output_tokens"
} | {
type: "failed"
error: FailureView
})
/**
 * Part in `response.content_part.*` events, which call its type `text` or `audio`.
 */
export type ContentPart = ({
type: "text"
text: string
} | {
type: "audio"
transcript: string
})

export interface SessionUpdate {
type: "session.update"
session: SessionFields
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * Settings that the session uses from now on.
 */
export interface SessionFields {
type?: ("realtime" | null)
/**
 * Modalities that the client asks for. A service without a voice answers in text.
 */
output_modalities?: (ModalityName[] | null)
/**
 * Older name of `output_modalities`.
 */
modalities?: (ModalityName[] | null)
instructions?: (string | null)
tools?: (NewTool[] | null)
tool_choice?: (ToolChoiceView | null)
max_output_tokens?: (MaxTokensView | null)
/**
 * Null: back to the preset's.
 */
temperature?: (number | null)
/**
 * Null: back to the preset's.
 */
reasoning?: (Reasoning | null)
parallel_tool_calls?: (boolean | null)
/**
 * Refused: no prompts are stored here.
 */
prompt?: ({
[k: string]: unknown
} | null)
extensions?: (string[] | null)
audio?: (AudioFields | null)
/**
 * Older names of what stands in `audio`.
 */
voice?: {
[k: string]: unknown
}
speed?: unknown
input_audio_format?: unknown
output_audio_format?: unknown
input_audio_transcription?: unknown
turn_detection?: unknown
}
export interface NewTool {
type?: ("function" | null)
name: string
description?: (string | null)
/**
 * A JSON schema.
 */
parameters?: ({
[k: string]: unknown
} | null)
}
export interface Reasoning {
effort?: (Effort | null)
}
/**
 * Audio settings. They mean nothing to a service without ears and a voice.
 */
export interface AudioFields {
input?: (AudioInputFields | null)
output?: (AudioOutputFields | null)
}
export interface AudioInputFields {
/**
 * `audio/pcm` at 24000, `audio/pcmu` or `audio/pcma`.
 */
format?: {
[k: string]: unknown
}
noise_reduction?: unknown
transcription?: unknown
/**
 * `server_vad` or `semantic_vad`; null: turns end by hand.
 */
turn_detection?: {
[k: string]: unknown
}
}
export interface AudioOutputFields {
format?: unknown
/**
 * Name of a speaker that the voice server has.
 */
voice?: {
[k: string]: unknown
}
speed?: unknown
}
export interface ConversationItemCreate {
type: "conversation.item.create"
item: NewItemFields
previous_item_id?: (string | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface NewMessage {
id?: (string | null)
role: NewRole
/**
 * A plain string is not in OpenAI's protocol, but it can mean only one thing.
 */
content: (string | NewPart[])
/**
 * Extension: the speaker's name, of a user's message.
 */
speaker?: (string | null)
}
export interface NewPart {
type?: (string | null)
text?: (string | null)
/**
 * Transcript of an audio part. The service does not hear the audio.
 */
transcript?: (string | null)
}
export interface NewCall {
id?: (string | null)
call_id?: (string | null)
name: string
arguments?: (string | null)
}
export interface NewCallOutput {
id?: (string | null)
call_id: string
/**
 * A string, or any JSON: a tool that returned an object may not have written it out.
 */
output?: {
[k: string]: unknown
}
}
export interface ConversationItemRetrieve {
type: "conversation.item.retrieve"
item_id: string
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface ConversationItemTruncate {
type: "conversation.item.truncate"
item_id: string
content_index?: (number | null)
audio_end_ms?: (number | null)
/**
 * Extension: characters (Unicode scalar values) that were heard.
 */
text_end?: (number | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface ConversationItemDelete {
type: "conversation.item.delete"
item_id: string
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface ResponseCreate {
type: "response.create"
response?: (ResponseFields | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * Settings of one response. The session's settings apply where a field is left out.
 */
export interface ResponseFields {
/**
 * Modalities that the client asks for. A service without a voice answers in text.
 */
output_modalities?: (ModalityName[] | null)
/**
 * Older name of `output_modalities`.
 */
modalities?: (ModalityName[] | null)
instructions?: (string | null)
tools?: (NewTool[] | null)
tool_choice?: (ToolChoiceView | null)
max_output_tokens?: (MaxTokensView | null)
temperature?: (number | null)
reasoning?: (Reasoning | null)
parallel_tool_calls?: (boolean | null)
/**
 * Refused: no prompts are stored here.
 */
prompt?: ({
[k: string]: unknown
} | null)
/**
 * `auto`, `none` (beside the conversation), or the conversation's id.
 */
conversation?: (string | null)
/**
 * Items that the model reads instead of the conversation so far.
 */
input?: (InputFields[] | null)
/**
 * Echoed in the response.
 */
metadata?: ({
[k: string]: string | null
} | null)
}
export interface ResponseCancel {
type: "response.cancel"
response_id?: (string | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * Words follow with what was thought so far.
 */
export interface ResponseStopThinking {
type: "response.stop_thinking"
response_id?: (string | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * The reply that was stopped goes on: nothing interrupted it. A new response says the same item from where it was heard.
 */
export interface ResponseResume {
type: "response.resume"
/**
 * The reply that was stopped last, if it is not given.
 */
item_id?: (string | null)
/**
 * Milliseconds of speech that were played of all that was said. As the item was truncated, if neither is given.
 */
audio_end_ms?: (number | null)
/**
 * Characters (Unicode scalar values) that were heard of it.
 */
text_end?: (number | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * Audio of the microphone, in the input's format. It is never acknowledged.
 */
export interface InputAudioBufferAppend {
type: "input_audio_buffer.append"
/**
 * Base64.
 */
audio: string
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
/**
 * Ends a turn by hand.
 */
export interface InputAudioBufferCommit {
type: "input_audio_buffer.commit"
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface InputAudioBufferClear {
type: "input_audio_buffer.clear"
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface InputTextBufferUpdate {
type: "input_text_buffer.update"
text: string
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface InputTextBufferCommit {
type: "input_text_buffer.commit"
text?: (string | null)
item_id?: (string | null)
speaker?: (string | null)
create_response?: (boolean | null)
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface InputTextBufferClear {
type: "input_text_buffer.clear"
event_id?: (string | null)
/**
 * W3C Trace Context: place in the client's trace of the next response of this connection
 */
traceparent?: (string | null)
}
export interface Error {
event_id: string
type: "error"
error: ErrorBody
}
export interface ErrorBody {
/**
 * The wider kind of error that OpenAI's clients tell apart.
 */
type: ("invalid_request_error" | "server_error" | "rate_limit_error")
/**
 * A word for programs.
 */
code: string
message: string
/**
 * The field that is wrong, as a path from the event.
 */
param: (string | null)
/**
 * The client's own id of the event that caused this.
 */
event_id: (string | null)
}
export interface SessionCreated {
event_id: string
type: "session.created"
session: SessionView
}
/**
 * The full effective session, every field that the typed clients know.
 */
export interface SessionView {
type: "realtime"
object: "realtime.session"
id: string
model: string
/**
 * Modality of the answers: text if the service has no voice, even if the client asked for audio.
 * 
 * @minItems 1
 * @maxItems 1
 */
output_modalities: [("text" | "audio")]
instructions: string
tools: ToolView[]
tool_choice: ToolChoiceView
max_output_tokens: MaxTokensView
temperature?: number
parallel_tool_calls: boolean
reasoning: (ReasoningView | null)
audio: AudioView
truncation: "auto"
tracing: null
prompt: null
include: null
expires_at: null
extensions?: string[]
}
export interface ToolView {
type: "function"
name: string
description?: string
/**
 * A JSON schema.
 */
parameters?: {
[k: string]: unknown
}
}
export interface ReasoningView {
effort: Effort
}
/**
 * Audio settings in effect. Without ears and a voice all of them are null.
 */
export interface AudioView {
input: AudioInput
output: AudioOutput
}
export interface AudioInput {
format: (FormatView | null)
noise_reduction: (NoiseReductionView | null)
transcription: (TranscriptionView | null)
turn_detection: (TurnDetectionView | null)
}
export interface FormatView {
type: ("audio/pcm" | "audio/pcmu" | "audio/pcma")
/**
 * Samples a second, of `audio/pcm`.
 */
rate?: (number | null)
}
export interface NoiseReductionView {
type: string
}
export interface TranscriptionView {
model?: (string | null)
language?: (string | null)
}
export interface TurnDetectionView {
type: ("server_vad" | "semantic_vad")
threshold?: (number | null)
prefix_padding_ms?: (number | null)
silence_duration_ms?: (number | null)
create_response: boolean
interrupt_response: boolean
idle_timeout_ms: (number | null)
eagerness?: (("auto" | "low" | "medium" | "high") | null)
}
export interface AudioOutput {
format: (FormatView | null)
voice: (string | null)
speed: (number | null)
}
export interface SessionUpdated {
event_id: string
type: "session.updated"
session: SessionView
}
export interface ConversationItemAdded {
event_id: string
type: "conversation.item.added"
previous_item_id: (string | null)
item: ItemView
}
export interface ConversationItemDone {
event_id: string
type: "conversation.item.done"
previous_item_id: (string | null)
item: ItemView
}
export interface ConversationItemRetrieved {
event_id: string
type: "conversation.item.retrieved"
item: ItemView
}
export interface ConversationItemTruncated {
event_id: string
type: "conversation.item.truncated"
item_id: string
content_index: number
audio_end_ms: number
text_end: number
}
export interface ConversationItemDeleted {
event_id: string
type: "conversation.item.deleted"
item_id: string
}
export interface InputAudioBufferCleared {
event_id: string
type: "input_audio_buffer.cleared"
}
export interface InputAudioBufferCommitted {
event_id: string
type: "input_audio_buffer.committed"
item_id: string
previous_item_id: (string | null)
}
export interface InputAudioBufferSpeechStarted {
event_id: string
type: "input_audio_buffer.speech_started"
audio_start_ms: number
item_id: string
}
export interface InputAudioBufferSpeechStopped {
event_id: string
type: "input_audio_buffer.speech_stopped"
audio_end_ms: number
item_id: string
}
export interface InputAudioBufferTimeoutTriggered {
event_id: string
type: "input_audio_buffer.timeout_triggered"
audio_start_ms: number
audio_end_ms: number
item_id: string
}
/**
 * Words of a turn that the user still says: the next piece of them.
 */
export interface ConversationItemInputAudioTranscriptionDelta {
event_id: string
type: "conversation.item.input_audio_transcription.delta"
item_id: string
content_index: number
delta: string
}
export interface ConversationItemInputAudioTranscriptionCompleted {
event_id: string
type: "conversation.item.input_audio_transcription.completed"
item_id: string
content_index: number
transcript: string
usage: TranscriptionUsage
}
export interface ConversationItemInputAudioTranscriptionFailed {
event_id: string
type: "conversation.item.input_audio_transcription.failed"
item_id: string
content_index: number
error: TranscriptionError
}
export interface TranscriptionError {
type: "server_error"
code: string
message: string
param: (string | null)
}
export interface ResponseCreated {
event_id: string
type: "response.created"
response: ResponseView
}
export interface ResponseView {
object: "realtime.response"
id: string
status: ("in_progress" | "completed" | "cancelled" | "incomplete" | "failed")
/**
 * Must be there even as null.
 */
status_details: (DetailsView | null)
output: ItemView[]
/**
 * Null for a response beside the conversation.
 */
conversation_id: (string | null)
/**
 * @minItems 1
 * @maxItems 1
 */
output_modalities: [("text" | "audio")]
max_output_tokens: MaxTokensView
usage: (UsageView | null)
metadata: ({
[k: string]: string | null
} | null)
}
export interface FailureView {
type: string
code: string
message: string
}
export interface UsageView {
total_tokens: number
input_tokens: number
output_tokens: number
input_token_details: InputTokens
output_token_details: OutputTokens
}
export interface InputTokens {
text_tokens: number
audio_tokens: number
image_tokens: number
cached_tokens: number
cached_tokens_details: CachedTokens
}
export interface CachedTokens {
text_tokens: number
audio_tokens: number
image_tokens: number
}
export interface OutputTokens {
text_tokens: number
audio_tokens: number
}
export interface ResponseDone {
event_id: string
type: "response.done"
response: ResponseView
}
export interface ResponseOutputItemAdded {
event_id: string
type: "response.output_item.added"
response_id: string
output_index: number
item: ItemView
}
export interface ResponseOutputItemDone {
event_id: string
type: "response.output_item.done"
response_id: string
output_index: number
item: ItemView
}
export interface ResponseContentPartAdded {
event_id: string
type: "response.content_part.added"
response_id: string
item_id: string
output_index: number
content_index: number
part: ContentPart
}
export interface ResponseContentPartDone {
event_id: string
type: "response.content_part.done"
response_id: string
item_id: string
output_index: number
content_index: number
part: ContentPart
}
export interface ResponseOutputTextDelta {
event_id: string
type: "response.output_text.delta"
response_id: string
item_id: string
output_index: number
content_index: number
delta: string
}
export interface ResponseOutputTextDone {
event_id: string
type: "response.output_text.done"
response_id: string
item_id: string
output_index: number
content_index: number
text: string
}
export interface ResponseOutputAudioDelta {
event_id: string
type: "response.output_audio.delta"
response_id: string
item_id: string
output_index: number
content_index: number
delta: string
}
export interface ResponseOutputAudioDone {
event_id: string
type: "response.output_audio.done"
response_id: string
item_id: string
output_index: number
content_index: number
}
export interface ResponseOutputAudioTranscriptDelta {
event_id: string
type: "response.output_audio_transcript.delta"
response_id: string
item_id: string
output_index: number
content_index: number
delta: string
/**
 * Seconds of the item's audio before these words, if the voice says them.
 */
start_time?: (number | null)
}
export interface ResponseOutputAudioTranscriptDone {
event_id: string
type: "response.output_audio_transcript.done"
response_id: string
item_id: string
output_index: number
content_index: number
transcript: string
}
export interface ResponseFunctionCallArgumentsDelta {
event_id: string
type: "response.function_call_arguments.delta"
response_id: string
item_id: string
output_index: number
call_id: string
delta: string
}
export interface ResponseFunctionCallArgumentsDone {
event_id: string
type: "response.function_call_arguments.done"
response_id: string
item_id: string
output_index: number
call_id: string
name: string
arguments: string
}
export interface RateLimitsUpdated {
event_id: string
type: "rate_limits.updated"
rate_limits: RateLimit[]
}
export interface RateLimit {
name: ("requests" | "tokens")
limit: number
remaining: number
reset_seconds: number
}
/**
 * Log probabilities of the next delta's tokens, for a client that asked for them.
 */
export interface ResponseOutputTextLogprobs {
event_id: string
type: "response.output_text.logprobs"
response_id: string
item_id: string
output_index: number
content_index: number
logprobs: LogprobView[]
}
/**
 * Log probability of a token, in the form of chat completions.
 */
export interface LogprobView {
token: string
logprob: number
bytes: number[]
top_logprobs: LikelyToken[]
}
export interface LikelyToken {
token: string
logprob: number
bytes: number[]
}
/**
 * A sentence is complete. Offsets count Unicode scalar values.
 */
export interface ResponseSentenceDone {
event_id: string
type: "response.sentence.done"
response_id: string
item_id: string
index: number
text: string
text_start: number
text_end: number
}
/**
 * A piece of what the model thinks before its words. It is told and not kept.
 */
export interface ResponseReasoningDelta {
event_id: string
type: "response.reasoning.delta"
response_id: string
delta: string
}
/**
 * The model was told to answer with what it has thought so far.
 */
export interface ResponseThinkingStopped {
event_id: string
type: "response.thinking_stopped"
response_id: string
}
export interface ResponseRecallDone {
event_id: string
type: "response.recall.done"
response_id: string
query: string
places: number
/**
 * Text that the service put before the question, if the service searched by itself.
 */
note?: (string | null)
}
export interface ContextUpdated {
event_id: string
type: "context.updated"
tokens: number
margin_tokens: number
ctx_size: number
fill: number
arm: (string | null)
}
export interface CompactionStarted {
event_id: string
type: "compaction.started"
summary_id: string
version: number
tokens_before: number
tokens_after: (number | null)
}
export interface CompactionCompleted {
event_id: string
type: "compaction.completed"
summary_id: string
version: number
tokens_before: number
tokens_after: (number | null)
/**
 * Version that `compaction.started` told. A `compaction.dropped` since may have taken it.
 */
started_version: number
}
export interface CompactionDropped {
event_id: string
type: "compaction.dropped"
summary_id: string
version: number
tokens_before: number
tokens_after: (number | null)
}
export interface CompactionFailed {
event_id: string
type: "compaction.failed"
summary_id: string
version: number
tokens_before: number
tokens_after: (number | null)
message: string
}
export interface PinRefused {
event_id: string
type: "pin.refused"
item_id: string
text: string
limit_tokens: number
}
/**
 * A fact that was learned in this conversation, once. `DELETE /v1/memories/{id}` forgets it.
 */
export interface MemoryLearned {
event_id: string
type: "memory.learned"
memory: {
id: string
/**
 * Person whose memory it is; empty for the home's.
 */
person: string
text: string
/**
 * The person asked for it: 'remember that ...'.
 */
asked: boolean
}
/**
 * Ids of the memories in whose place it is.
 */
replaces: string[]
}
/**
 * A correction or a wish to forget that may mean more than one memory: all of them stay.
 */
export interface MemoryUnsure {
event_id: string
type: "memory.unsure"
/**
 * The correction's own memory; null for a wish to forget.
 */
memory_id: (string | null)
/**
 * Ids of the memories that it may mean, the likeliest first.
 */
near: string[]
}
export interface TurnReport {
event_id: string
type: "turn.report"
response_id: string
reused_tokens: number
computed_tokens: number
reason: (string | null)
/**
 * The reply was begun before it was asked for, and had so many tokens then.
 */
begun_early: (number | null)
/**
 * The reply is whole and ends in a question to the user: the microphone is wanted again.
 */
expects_answer: boolean
ms: TurnMs
}
/**
 * Times of a turn. The model measures `queue` and `prefill`. The others count from `response.create` on.
 */
export interface TurnMs {
queue: number
prefill: number
first_token: (number | null)
first_sentence: (number | null)
total: number
}

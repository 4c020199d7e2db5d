// The client library of Reprise: a conversation over the Realtime websocket, and the service's other routes.
export { Api, ApiError } from "./api.ts";
export type * from "./answers.ts";
export { Conversation } from "./conversation.ts";
export type { ConversationEvents, Item, ItemStatus, Reply, Sentence } from "./conversation.ts";
export { Link } from "./link.ts";
export type { LinkOptions, LinkState, Refusal } from "./link.ts";
export type * as events from "./events.ts";
export { BrowserPlayer, Microphone } from "./browser.ts";
export { AUDIO_RATE, PacedPlayer, Spoken } from "./spoken.ts";
export type { Heard, Player } from "./spoken.ts";

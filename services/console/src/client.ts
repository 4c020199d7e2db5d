// The client library, as the page uses it.
export { Emitter } from "../client/src/emitter.ts";
export * from "../client/src/index.ts";

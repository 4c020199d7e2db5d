// What the store has of a conversation, in the form of what the service tells a client.
import type { Item, ItemStatus, Sentence, StoredItem } from "./client.ts";

/** Returns undefined for what nobody said. */
export function item_of({ item_id, body, status, response }: StoredItem): Item | undefined {
  const whole: ItemStatus = status === "completed" ? "completed" : "incomplete";
  const sentences: Sentence[] = [];
  const common = { id: item_id, status: whole, response_id: response ?? undefined, sentences };
  switch (body.kind) {
    case "message":
      return { ...common, kind: "message", role: body.role, text: body.parts.map(({ text }) => text).join(""), speaker: body.speaker?.name };
    case "function_call":
      return { ...common, kind: "call", role: "assistant", text: body.arguments, name: body.name, call_id: body.call_id };
    case "function_call_output":
      return { ...common, kind: "output", role: "tool", text: body.output, call_id: body.call_id };
    default:
      return undefined;
  }
}

/** Puts before what the client was told what only the store has: turns that a summary tells. */
export function with_history(history: Item[], told: Item[]): Item[] {
  const known = new Set(told.map(({ id }) => id));
  const first = history.findIndex(({ id }) => known.has(id));
  const before = first < 0 ? history : history.slice(0, first);
  return [...before.filter(({ id }) => !known.has(id)), ...told];
}

// Titles of conversations: from the first words at once, and by the model where it can, when nobody waits for it.
import type { Api, Conversation } from "./client.ts";

const MOST_WORDS = 8;
const asked = new Set<string>();

/** Asks the model for a title once for a conversation. True if there is one now. */
export async function suggest_title(api: Api, conversation: Conversation): Promise<boolean> {
  const { id, session, items } = conversation;
  // The model inside the binary repeats what it knows, and gives no titles.
  if (!id || asked.has(id) || !session || session.model === "reprise-builtin") return false;
  const said = items.filter((item) => item.kind === "message" && item.role !== "system").slice(0, 4);
  if (said.length < 2) return false;
  asked.add(id);
  const talk = said.map(({ role, text }) => `${role}: ${text.slice(0, 400)}`).join("\n");
  // A task beside the conversation: it waits behind all replies, and nothing of it is kept.
  const content = `### Task:\nGive this conversation a title of two to six words in its own language. Write the title only.\n\n${talk}`;
  const body = { messages: [{ role: "user", content }], max_tokens: 24, reasoning_effort: "none", metadata: { private: "true" } };
  try {
    const answer = await api.ask<{ choices: { message: { content: string | null } }[] }>("POST", "/v1/chat/completions", body);
    const title = (answer.choices[0]?.message.content ?? "").split("\n")[0]?.replace(/^["'“„#*\s]+|["'”“.*\s]+$/g, "") ?? "";
    if (!title || title.split(/\s+/).length > MOST_WORDS) return false;
    await api.rename(id, title.slice(0, 80));
    return true;
  } catch {
    return false;
  }
}

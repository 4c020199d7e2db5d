// A message, its sentences, and what can be done with it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Item } from "../client.ts";
import { Icon, type IconName } from "../icons.tsx";
import { type Mark, useShared } from "../state.ts";
import { seconds } from "../words.ts";
import { Ask } from "./dialog.tsx";
import { Prose } from "./prose.tsx";

export function UserMessage({ item, is_last, is_told }: { item: Item; is_last: boolean; is_told: boolean }): JSX.Element {
  const state = useShared();
  const { conversation } = state;
  const [edits, set_edits] = useState(false);
  return (
    <article class="message user" aria-label={item.speaker ? `${item.speaker} said` : "You said"}>
      {item.speaker && <span class="speaker">{item.speaker}</span>}
      <p class="bubble">{item.text}</p>
      <div class={`actions ${is_last ? "stays" : ""}`}>
        {is_told && <Action icon="edit" name="Edit and ask again" act={() => set_edits(true)} />}
        <Copy text={item.text} />
      </div>
      {edits && (
        <Ask
          title="Say something else instead"
          label="Message. What came after it is deleted."
          value={item.text}
          action="Say it"
          lines={4}
          onAnswer={(text) => text.trim() && state.changes(conversation.edit(item.id, text.trim()))}
          onClose={() => set_edits(false)}
        />
      )}
    </article>
  );
}

export function AssistantMessage({ item, is_last, mark }: { item: Item; is_last: boolean; mark?: Mark }): JSX.Element {
  const state = useShared();
  const { conversation, speaking, voice } = state;
  const is_coming = conversation.reply !== undefined && conversation.reply.item_id === item.id;
  if (!item.text && item.status === "in_progress") return <></>;
  const was_cut = !is_coming && item.status === "incomplete";
  return (
    <article class={`message assistant ${is_coming ? "is-coming" : ""}`} aria-label="The assistant said" aria-busy={is_coming}>
      {item.reasoning && (
        <details class="fold">
          <summary>Thought before answering</summary>
          <p class="fold-text">{item.reasoning}</p>
        </details>
      )}
      <Said item={item} />
      {was_cut && (
        <p class="note">
          Interrupted here.{" "}
          {is_last && (
            <button class="link" onClick={() => state.changes(conversation.resume())}>
              Go on
            </button>
          )}
        </p>
      )}
      {!is_coming && (
        <div class={`actions ${is_last ? "stays" : ""}`}>
          {mark && <Thumb item={item} mark={mark} value={1} icon="up" name="Good answer" />}
          {mark && <Thumb item={item} mark={mark} value={-1} icon="down" name="Bad answer" />}
          {is_last && <Action icon="again" name="Answer again" act={() => state.changes(conversation.regenerate())} />}
          <Copy text={item.text} />
          {voice.speaks && <Action icon="speak" name="Read aloud" act={() => speaking.repeat(read_aloud(item))} />}
          {mark?.first_token_ms != null && (
            <span class="took" title="From your last word to the first word of the answer">
              {seconds(mark.first_token_ms)}
            </span>
          )}
        </div>
      )}
    </article>
  );
}

/** Text of a reply, with the sentence that is being spoken marked. */
function Said({ item }: { item: Item }): JSX.Element {
  const { speaking, spoken: by_service } = useShared();
  const spoken = [speaking.current, by_service.current].find((sentence) => sentence?.item_id === item.id);
  if (!spoken) return <Prose text={item.text} />;
  const letters = [...item.text];
  const piece = (from: number, to?: number) => letters.slice(from, to).join("");
  return (
    <p class="plain">
      {piece(0, spoken.start)}
      <mark class="spoken">{piece(spoken.start, spoken.end)}</mark>
      {piece(spoken.end)}
    </p>
  );
}

/** Sentences of an older reply, as the browser finds them. */
function read_aloud(item: Item) {
  if (item.sentences.length > 0) return item.sentences;
  let start = 0;
  return [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(item.text)].map(({ segment }, index) => {
    const end = start + [...segment].length;
    const sentence = { item_id: item.id, response_id: "", index, text: segment.trim(), start, end };
    start = end;
    return sentence;
  });
}

interface ThumbFields {
  item: Item;
  mark: Mark;
  value: 1 | -1;
  icon: IconName;
  name: string;
}

function Thumb({ item, mark, value, icon, name }: ThumbFields): JSX.Element {
  const state = useShared();
  const is_on = mark.feedback === value;
  return <Action icon={icon} name={name} is_on={is_on} act={() => void state.thumb(item.id, is_on ? 0 : value)} />;
}

function Action({ icon, name, act, is_on }: { icon: IconName; name: string; act: () => void; is_on?: boolean }): JSX.Element {
  return (
    <button class="quiet small" aria-label={name} title={name} aria-pressed={is_on} onClick={act}>
      <Icon name={icon} size={17} />
    </button>
  );
}

const COPIED_MS = 1500;

function Copy({ text }: { text: string }): JSX.Element | null {
  const [is_copied, set_copied] = useState(false);
  // Browsers give pages the clipboard on a secure address only.
  if (!navigator.clipboard) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    set_copied(true);
    setTimeout(() => set_copied(false), COPIED_MS);
  };
  return <Action icon={is_copied ? "check" : "copy"} name={is_copied ? "Copied" : "Copy"} act={() => void copy()} />;
}

/** Calls of tools and their results, folded to one line. */
export function ToolSteps({ items }: { items: Item[] }): JSX.Element {
  const calls = items.filter((item) => item.kind === "call");
  const names = calls.map((call) => call.name).join(", ");
  return (
    <details class="fold tools">
      <summary>{calls.length ? `Used ${names}` : "Result of a tool"}</summary>
      {items.map((item) => (
        <pre key={item.id}>
          {item.kind === "call" ? `${item.name} ` : "→ "}
          {item.text}
        </pre>
      ))}
    </details>
  );
}

// What the model reads of a conversation: its window, its turns, and the summaries that stand for older turns.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Pin, StoredItem, Summary, TurnNumbers, WindowAnswer } from "../client.ts";
import { Icon } from "../icons.tsx";
import { title_of } from "../parts/conversations.tsx";
import { Ask } from "../parts/dialog.tsx";
import { Prose } from "../parts/prose.tsx";
import { Empty, Loaded, useLoaded } from "../parts/loaded.tsx";
import { address, go, usePlace } from "../routes.ts";
import { useShared } from "../state.ts";
import { count, length, moment, percent, plural, seconds } from "../words.ts";

export function Memory(): JSX.Element {
  const state = useShared();
  const { of } = usePlace();
  const lines = state.sessions.filter((line) => line.items > 0);
  const id = of ?? state.conversation.id ?? lines[0]?.id;
  return (
    <div class="page">
      <header class="page-head">
        <h1>Memory</h1>
        <p>What the model has before it when it answers, and what it makes of older turns.</p>
        {lines.length > 0 && (
          <label class="field inline">
            <span>Conversation</span>
            <select value={id} onChange={(event) => go({ view: "memory", of: event.currentTarget.value })}>
              {lines.map((line) => (
                <option key={line.id} value={line.id}>
                  {title_of(line)}
                </option>
              ))}
            </select>
          </label>
        )}
      </header>
      {id ? <OfSession key={id} id={id} /> : <Empty title="Nothing yet" text="Talk first. Then this page shows what the model reads of it." link={{ name: "Talk", to: "#/talk" }} />}
    </div>
  );
}

interface OfSession {
  window: WindowAnswer;
  turns: TurnNumbers[];
  summaries: Summary[];
  pins: Pin[];
}

function OfSession({ id }: { id: string }): JSX.Element {
  const state = useShared();
  const loaded = useLoaded<OfSession>(async () => {
    const { api } = state;
    const [window, turns, summaries, pins] = await Promise.all([api.window(id), api.turns(id, 60), api.summaries(id), api.pins(id)]);
    return { window, turns: turns.data, summaries: summaries.data, pins: pins.data };
  }, [id]);
  // What happens in the conversation is seen here at once.
  useEffect(() => {
    if (state.conversation.id !== id) return;
    const off = [state.conversation.on("report", loaded.again), state.conversation.on("compaction", loaded.again)];
    return () => off.forEach((end) => end());
  }, [id, state.conversation]);
  return (
    <Loaded of={loaded}>
      {({ window, turns, summaries, pins }) => (
        <>
          <Window window={window} />
          <Timeline id={id} summaries={summaries} again={loaded.again} />
          <Turns turns={turns} />
          <Pins id={id} pins={pins} again={loaded.again} />
        </>
      )}
    </Loaded>
  );
}

const PARTS: { field: keyof WindowAnswer; part: string; name: string; text: string }[] = [
  { field: "instructions_tokens", part: "instructions", name: "Instructions", text: "how the assistant is to be" },
  { field: "tools_tokens", part: "tools", name: "Tools", text: "what it may use" },
  { field: "facts_tokens", part: "facts", name: "Facts", text: "remembered from earlier conversations" },
  { field: "summary_tokens", part: "summary", name: "Summary", text: "of the turns before" },
  { field: "pins_tokens", part: "pins", name: "Pins", text: "kept word for word" },
  { field: "turns_tokens", part: "turns", name: "Recent turns", text: "as they were said" },
  { field: "marks_tokens", part: "marks", name: "Marks", text: "between the parts" },
];

function Window({ window }: { window: WindowAnswer }): JSX.Element {
  const share = (tokens: number) => tokens / window.ctx_size;
  const parts = PARTS.map((part) => ({ ...part, tokens: window[part.field] as number })).filter(({ tokens }) => tokens > 0);
  const reserve = Math.min(window.reply_reserve_tokens, Math.max(window.ctx_size - window.total_tokens, 0));
  const free = Math.max(window.ctx_size - window.total_tokens - reserve, 0);
  const about = window.margin_tokens > 0 ? "about " : "";
  return (
    <section class="card" aria-labelledby="window-title">
      <div class="card-head">
        <h2 id="window-title">The window</h2>
        <span class="quiet-text number">
          {about}
          {count(window.total_tokens)} of {count(window.ctx_size)} tokens, {percent(share(window.total_tokens))}
        </span>
      </div>
      <div class="window-bar" role="img" aria-label={parts.map(({ name, tokens }) => `${name}: ${count(tokens)} tokens`).join(", ")}>
        {parts.map(({ part, tokens, name }) => (
          <span key={part} class={`part part-${part}`} style={{ flexGrow: tokens }} title={`${name}: ${count(tokens)}`} />
        ))}
        <span class="part part-free" style={{ flexGrow: free }} title={`Free: ${count(free)}`} />
        <span class="part part-reserve" style={{ flexGrow: reserve }} title={`Kept for the reply: ${count(reserve)}`} />
        <span class="window-mark" style={{ left: length(share(window.soft_tokens)) }} title={`A summary is made from ${count(window.soft_tokens)} tokens on`} />
      </div>
      <dl class="legend">
        {parts.map(({ part, name, text, tokens }) => (
          <div key={part}>
            <dt>
              <span class={`dot part-${part}`} /> {name} <span class="quiet-text">{text}</span>
            </dt>
            <dd class="number">{count(tokens)}</dd>
          </div>
        ))}
        <div>
          <dt>
            <span class="dot part-reserve" /> Reply <span class="quiet-text">kept free for it</span>
          </dt>
          <dd class="number">{count(window.reply_reserve_tokens)}</dd>
        </div>
        <div>
          <dt>
            <span class="dot part-free" /> Free <span class="quiet-text">from {count(window.soft_tokens)} on, a summary makes room in the next silence</span>
          </dt>
          <dd class="number">{count(free)}</dd>
        </div>
      </dl>
    </section>
  );
}

const REASONS: Record<string, string> = {
  new_text: "only the new words",
  cold: "all of it: it was new",
  edited: "from a change on",
  evicted: "what had made room for others",
  other_model: "again, by another model",
  resumed: "nothing: it went on",
};

const in_words = ({ reused_tokens, warm_tokens, computed_tokens }: TurnNumbers) =>
  `${count(reused_tokens - warm_tokens)} known, ${count(warm_tokens)} read ahead, ${count(computed_tokens)} read anew`;

/** Turns that are shown before more are asked for. */
const FIRST_TURNS = 10;

function Turns({ turns }: { turns: TurnNumbers[] }): JSX.Element | null {
  const [shows_all, set_shows_all] = useState(false);
  if (turns.length === 0) return null;
  const most = Math.max(...turns.map((turn) => turn.reused_tokens + turn.computed_tokens), 1);
  return (
    <section class="card" aria-labelledby="turns-title">
      <div class="card-head">
        <h2 id="turns-title">Turns</h2>
        <span class="key">
          <span class="dot strip-reused" /> known already <span class="dot strip-warm" /> read ahead <span class="dot strip-computed" /> read anew
        </span>
      </div>
      <table class="turns">
        <thead>
          <tr>
            <th scope="col">Turn</th>
            <th scope="col">Tokens</th>
            <th scope="col">Wait</th>
            <th scope="col" class="wide-only">Read anew</th>
          </tr>
        </thead>
        <tbody>
          {turns.slice(0, shows_all ? undefined : FIRST_TURNS).map((turn) => (
            <tr key={turn.turn}>
              <th scope="row" class="number" title={moment(turn.created_at_ms)}>
                {turn.turn + 1}
              </th>
              <td>
                <span class="strip" title={in_words(turn)}>
                  <span class="strip-reused" style={{ width: length((turn.reused_tokens - turn.warm_tokens) / most) }} />
                  <span class="strip-warm" style={{ width: length(turn.warm_tokens / most) }} />
                  <span class="strip-computed" style={{ width: `max(2px, ${length(turn.computed_tokens / most)})` }} />
                </span>
                <span class="sr-only">{in_words(turn)}</span>
              </td>
              <td class="number">{seconds(turn.first_token_ms)}</td>
              <td class="wide-only quiet-text">
                <span class="number">{count(turn.computed_tokens)}</span>
                {turn.computed_reason ? `, ${REASONS[turn.computed_reason] ?? turn.computed_reason}` : ""}
                {turn.barged_in ? " · interrupted" : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {!shows_all && turns.length > FIRST_TURNS && (
        <div class="row">
          <button onClick={() => set_shows_all(true)}>Show {turns.length - FIRST_TURNS} older ones</button>
        </div>
      )}
    </section>
  );
}

const MADE_BY = { model: "by the model", user: "by you", fallback: "put together without the model" };

function Timeline({ id, summaries, again }: { id: string; summaries: Summary[]; again: () => void }): JSX.Element {
  const shown = summaries.filter((summary) => summary.applied_at_ms !== null || summary.undone_at_ms !== null);
  return (
    <section class="card" aria-labelledby="summaries-title">
      <div class="card-head">
        <h2 id="summaries-title">Summaries</h2>
        <span class="quiet-text">{shown.length ? plural(shown.length, "version") : ""}</span>
      </div>
      {shown.length === 0 && <p class="quiet-text">None yet: all that was said still fits. When the window fills, older turns are summarised in a silence. Nothing that was said is lost by it.</p>}
      <ol class="timeline">
        {shown.map((summary) => (
          <SummaryEntry key={summary.version} id={id} summary={summary} again={again} />
        ))}
      </ol>
    </section>
  );
}

function SummaryEntry({ id, summary, again }: { id: string; summary: Summary; again: () => void }): JSX.Element {
  const state = useShared();
  const [is_open, set_open] = useState(false);
  const [edits, set_edits] = useState(false);
  const { version, kind, in_use, made_by, tokens_before, tokens_after, created_at_ms, undone_at_ms } = summary;
  const act = async (work: Promise<unknown>, done: string) => {
    if (await state.attempt(work, done)) again();
  };
  const name = kind === "drop" ? "Oldest turns left out" : `Summary ${version}`;
  return (
    <li class={in_use ? "in-use" : ""}>
      <div class="timeline-head">
        <button class="link" aria-expanded={is_open} onClick={() => set_open(!is_open)}>
          {name}
        </button>
        {in_use && <span class="badge">in use</span>}
        {undone_at_ms !== null && <span class="badge is-off">undone</span>}
        <span class="quiet-text">
          {moment(created_at_ms)}, {MADE_BY[made_by]} · <span class="number">{count(tokens_before)} → {count(tokens_after)} tokens</span>
        </span>
      </div>
      {is_open && (
        <div class="covered">
          <div>
            <h3>What stands in the window</h3>
            <Prose text={summary.text || "Nothing: the turns were left out until a summary is made."} />
            <Checks checks={summary.checks} />
          </div>
          <Covered id={id} summary={summary} />
        </div>
      )}
      <div class="row">
        {kind === "summary" && <button onClick={() => set_edits(true)}><Icon name="edit" size={17} /> Edit</button>}
        {in_use && <button onClick={() => void act(state.api.undo_summary(id, version), "The summary is undone.")}><Icon name="undo" size={17} /> Undo</button>}
        {undone_at_ms !== null && <button onClick={() => void act(state.api.redo_summary(id, version), "The summary is in use again.")}><Icon name="again" size={17} /> Use again</button>}
      </div>
      {edits && (
        <Ask
          title="Edit the summary"
          label="Words that stand for these turns from the next turn on"
          value={summary.text}
          action="Use these words"
          lines={9}
          onAnswer={(text) => void act(state.api.edit_summary(id, version, text), "Your words are in use.")}
          onClose={() => set_edits(false)}
        />
      )}
    </li>
  );
}

function Checks({ checks }: { checks: Record<string, unknown> }): JSX.Element | null {
  const told = Object.entries(checks).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
  if (told.length === 0) return null;
  return (
    <dl class="checks">
      {told.map(([name, value]) => (
        <div key={name}>
          <dt>{name.replaceAll("_", " ")}</dt>
          <dd class="number">{typeof value === "boolean" ? (value ? "yes" : "no") : String(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

const MOST_PAGES = 20;

/** The turns that a summary covers, as they were said. */
function Covered({ id, summary }: { id: string; summary: Summary }): JSX.Element {
  const { api } = useShared();
  const loaded = useLoaded<StoredItem[]>(async () => {
    const items: StoredItem[] = [];
    for (let page = 0, after: string | undefined; page < MOST_PAGES; page++) {
      const { data, has_more } = await api.items(id, after);
      items.push(...data);
      after = data.at(-1)?.item_id;
      if (!has_more || data.some((item) => item.item_id === summary.to_item)) break;
    }
    const [from, to] = [summary.from_item, summary.to_item].map((end) => items.findIndex((item) => item.item_id === end));
    return items.slice(Math.max(from ?? 0, 0), to !== undefined && to >= 0 ? to + 1 : undefined);
  }, [id, summary.version]);
  return (
    <div>
      <h3>What was said</h3>
      <Loaded of={loaded}>
        {(items) => (
          <ul class="said" tabIndex={0} aria-label="Turns that the summary covers">
            {items.map(({ item_id, body }) =>
              body.kind === "message" && body.role !== "system" ? (
                <li key={item_id}>
                  <span class="quiet-text">{body.role === "user" ? (body.speaker?.name ?? "You") : "Assistant"}</span> {body.parts.map((part) => part.text).join("")}
                </li>
              ) : null,
            )}
          </ul>
        )}
      </Loaded>
    </div>
  );
}

function Pins({ id, pins, again }: { id: string; pins: Pin[]; again: () => void }): JSX.Element {
  const state = useShared();
  const [text, set_text] = useState("");
  const add = async () => {
    if (!text.trim() || !(await state.attempt(state.api.add_pin(id, text.trim()), "Pinned."))) return;
    set_text("");
    again();
  };
  const remove = async (pin: Pin) => {
    if (await state.attempt(state.api.remove_pin(id, pin.id), "The pin is removed.")) again();
  };
  return (
    <section class="card" aria-labelledby="pins-title">
      <div class="card-head">
        <h2 id="pins-title">Pins</h2>
        <span class="quiet-text">word for word in every prompt of this conversation</span>
      </div>
      <ul class="lines">
        {pins.map((pin) => (
          <li key={pin.id}>
            <Icon name="pin" size={17} />
            <span class="grow">{pin.text}</span>
            <button class="quiet small" aria-label={`Remove the pin: ${pin.text}`} onClick={() => void remove(pin)}>
              <Icon name="trash" size={17} />
            </button>
          </li>
        ))}
      </ul>
      <form class="row" onSubmit={(event) => (event.preventDefault(), void add())}>
        <input class="grow" aria-label="Text to pin" placeholder="Something that must not be forgotten here" value={text} onInput={(event) => set_text(event.currentTarget.value)} />
        <button disabled={!text.trim()}>Pin</button>
      </form>
      <p class="quiet-text">
        What is remembered beyond this conversation is with the <a href={address({ view: "people" })}>people</a>.
      </p>
    </section>
  );
}

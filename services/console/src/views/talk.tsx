// The conversation: what was said, the reply as it comes, and the field to say something.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Item } from "../client.ts";
import { with_history } from "../history.ts";
import { Composer } from "../parts/composer.tsx";
import { title_of } from "../parts/conversations.tsx";
import { Ask, Confirm } from "../parts/dialog.tsx";
import { file_name, save } from "../parts/files.ts";
import { Menu } from "../parts/menu.tsx";
import { AssistantMessage, ToolSteps, UserMessage } from "../parts/message.tsx";
import { go, usePlace } from "../routes.ts";
import { type Aside, state, useShared } from "../state.ts";
import { count, length, percent } from "../words.ts";

export function Talk(): JSX.Element {
  const state = useShared();
  const { conversation } = state;
  const shown = with_history(state.history, conversation.items).filter((item) => item.role !== "system");
  const is_empty = shown.length === 0 && conversation.unsent.length === 0;
  const is_busy = conversation.reply !== undefined || state.speaking.current !== undefined || state.spoken.is_playing;
  const key = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented || (event.target as Element).closest("dialog, .menu")) return;
    if (is_busy) state.stop();
  };
  return (
    <div class="talk" onKeyDown={key}>
      <Header />
      {is_empty && !conversation.link.options.session ? <Welcome /> : <Log items={shown} />}
      <LastSentence />
      <Composer />
    </div>
  );
}

function Header(): JSX.Element {
  const state = useShared();
  const { conversation } = state;
  const [asks, set_asks] = useState<"name" | "delete">();
  const id = conversation.id;
  const line = state.sessions.find((line) => line.id === id);
  const title = line ? title_of(line) : id ? "Conversation" : "New conversation";
  const whose = [line?.person, line?.room].filter(Boolean).join(" · ");
  const rename = async (name: string) => {
    if (id && (await state.attempt(state.api.rename(id, name)))) state.refresh();
  };
  const remove = async () => {
    if (!id || !(await state.attempt(state.api.remove(id), "The conversation is deleted."))) return;
    state.refresh();
    go({ view: "talk" });
  };
  const download = async () => {
    const lines = id && (await state.attempt(state.api.export(id)));
    if (lines) save(`${file_name(title)}.jsonl`, lines);
  };
  return (
    <header class="bar">
      <div class="bar-title">
        <h1>{title}</h1>
        {whose && <span class="whose">{whose}</span>}
      </div>
      <Connection />
      {id && state.may_list && (
        <Menu
          label="What to do with this conversation"
          entries={[
            { name: "Rename", icon: "edit", act: () => set_asks("name") },
            { name: "What it remembers", icon: "memory", act: () => go({ view: "memory", of: id }) },
            { name: "Export", icon: "down_file", act: () => void download() },
            { name: "Delete", icon: "trash", act: () => set_asks("delete"), is_danger: true },
          ]}
        />
      )}
      {asks === "name" && (
        <Ask title="Rename the conversation" label="Title" value={title} action="Rename" onAnswer={(name) => void rename(name)} onClose={() => set_asks(undefined)} />
      )}
      {asks === "delete" && (
        <Confirm
          title="Delete this conversation?"
          text="Everything that was said in it is deleted for good, with what was learned only here. An export keeps a copy."
          action="Delete"
          onConfirm={() => void remove()}
          onClose={() => set_asks(undefined)}
        />
      )}
    </header>
  );
}

const STATES = { connecting: "Connecting…", waiting: "Connection lost. Trying again…", refused: "Not let in", open: "", closed: "" };

function Connection(): JSX.Element {
  const { conversation } = useShared();
  const text = STATES[conversation.state];
  // A connection that opens at once needs no word.
  return (
    <span class={`connection ${conversation.state}`} role="status">
      {conversation.state === "connecting" ? "" : text}
    </span>
  );
}

const HINTS = [
  { name: "Say good morning", words: "Good morning!" },
  { name: "Ask what it remembers", words: "What do you remember about me?" },
  { name: "Tell it something to keep", words: "Remember that the bins go out on Tuesday evening." },
  { name: "Ask for a story", words: "Tell me a short story about a fox." },
];

function Welcome(): JSX.Element {
  const state = useShared();
  return (
    <div class="welcome">
      <h2>What is on your mind?</h2>
      <p>{state.voice.hears ? "Speak or type." : "Write it below."} It is kept on your own server, and you can come back to it whenever you like.</p>
      <ul class="hints">
        {HINTS.map(({ name, words }) => (
          <li key={name}>
            <button onClick={() => state.say(words)}>
              <span>{name}</span>
              <span class="quiet-text">“{words}”</span>
            </button>
          </li>
        ))}
      </ul>
      <label class="check">
        <input type="checkbox" checked={state.is_private} onChange={(event) => state.set_private(event.currentTarget.checked)} />
        <span>Private: nothing of this conversation is remembered elsewhere</span>
      </label>
    </div>
  );
}

/** What is shown in a row: a message, or the steps with tools between messages. */
type Row = { kind: "message"; item: Item } | { kind: "steps"; items: Item[] };

function rows(items: Item[]): Row[] {
  const rows: Row[] = [];
  for (const item of items) {
    const last = rows.at(-1);
    if (item.kind === "message") rows.push({ kind: "message", item });
    else if (last?.kind === "steps") last.items.push(item);
    else rows.push({ kind: "steps", items: [item] });
  }
  return rows;
}

/** Rows that are shown before more are asked for: a browser that lays out thousands is slow at each word. */
const ROWS = 200;

/** Distance from the end, in pixels, within which new words pull the view along. */
const NEAR_END = 120;

function Log({ items }: { items: Item[] }): JSX.Element {
  const state = useShared();
  const { conversation, asides, marks } = state;
  const { item: wanted } = usePlace();
  const log = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const found = useRef<string>(undefined);
  useLayoutEffect(() => {
    if (wanted && found.current !== wanted) {
      const there = document.getElementById(`item-${wanted}`);
      there?.scrollIntoView({ block: "center" });
      if (there) [found.current, follows.current] = [wanted, false];
    } else if (follows.current) log.current?.scrollTo(0, log.current.scrollHeight);
  });
  useEffect(() => {
    follows.current = true;
  }, [conversation]);
  const scrolled = () => {
    // The last event of a log comes when it has gone.
    if (!log.current) return;
    const { scrollTop, clientHeight, scrollHeight } = log.current;
    follows.current = scrollHeight - clientHeight - scrollTop < NEAR_END;
  };
  const [most, set_most] = useState(ROWS);
  const all = rows(items);
  const place_of_wanted = all.findIndex((row) => row.kind === "message" && row.item.id === wanted);
  const hidden = Math.max(Math.min(all.length - most, place_of_wanted < 0 ? Infinity : place_of_wanted - ROWS / 4), 0);
  const told = new Set(conversation.items.map((item) => item.id));
  const last = items.findLast((item) => item.kind === "message");
  const last_user = items.findLast((item) => item.role === "user");
  const known = new Set(items.map((item) => item.id));
  const reply = conversation.reply;
  const waits = reply && !items.some((item) => item.id === reply.item_id && item.text);
  return (
    <div class="log" ref={log} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label="What was said">
      <div class="column">
        {asides.filter(({ after }) => !after || !known.has(after)).map(aside)}
        {hidden > 0 && (
          <p class="aside">
            <button
              class="link"
              onClick={() => {
                // What was read stays in its place.
                const { current } = log;
                const below = current ? current.scrollHeight - current.scrollTop : 0;
                follows.current = false;
                set_most(all.length - hidden + ROWS);
                requestAnimationFrame(() => current?.scrollTo(0, current.scrollHeight - below));
              }}
            >
              Show what was said before
            </button>
          </p>
        )}
        {all.slice(hidden).map((row) =>
          row.kind === "steps" ? (
            <ToolSteps key={row.items[0]?.id} items={row.items} />
          ) : (
            <div key={row.item.id} id={`item-${row.item.id}`} class={row.item.id === wanted ? "is-found" : undefined}>
              {row.item.role === "user" ? (
                <UserMessage item={row.item} is_last={row.item === last_user} is_told={told.has(row.item.id)} />
              ) : (
                <AssistantMessage item={row.item} is_last={row.item === last} mark={marks.get(row.item.id)} />
              )}
              {asides.filter(({ after }) => after === row.item.id).map(aside)}
            </div>
          ),
        )}
        {conversation.unsent.map((text, at) => (
          <div key={at} class="message user is-unsent">
            <p class="bubble">{text}</p>
            <span class="note">{conversation.state === "open" ? "Being sent" : "Waiting for the connection"}</span>
          </div>
        ))}
        {conversation.partial && (
          <div class="message user is-unsent">
            <p class="bubble">{conversation.partial}…</p>
          </div>
        )}
        {waits && <Thinking reasoning={reply.reasoning} />}
      </div>
    </div>
  );
}

const aside = ({ text, link, memory }: Aside, at: number) => (
  <p class="aside" key={at}>
    {text} {link && <a href={link}>See it</a>}
    {memory && state.may_list && (
      <button class="link" onClick={() => void state.forget(memory)}>
        Forget it
      </button>
    )}
  </p>
);

function Thinking({ reasoning }: { reasoning: string }): JSX.Element {
  const { conversation } = useShared();
  return (
    <div class="message assistant">
      {reasoning ? (
        <details class="fold" open={false}>
          <summary>
            <span class="pulse" /> Thinking…
            <button class="link" onClick={(event) => (event.preventDefault(), conversation.stop_thinking())}>
              Answer now
            </button>
          </summary>
          <p class="fold-text">{reasoning}</p>
        </details>
      ) : (
        <p class="waiting" role="status" aria-label="The reply is coming">
          <span class="pulse" />
        </p>
      )}
    </div>
  );
}

/** The newest whole sentence, for screen readers: they would repeat a text that grows word by word. */
function LastSentence(): JSX.Element {
  const { conversation } = useShared();
  const reply = conversation.items.findLast((item) => item.role === "assistant" && item.kind === "message");
  const is_fresh = reply?.response_id !== undefined;
  return (
    <div class="sr-only" aria-live="polite">
      {is_fresh ? (reply.sentences.at(-1)?.text ?? "") : ""}
    </div>
  );
}

/** How full the window is, in words that mean something at home. */
export function Fill(): JSX.Element | null {
  const { conversation, sessions } = useShared();
  const { id } = conversation;
  const line = sessions.find((line) => line.id === id);
  // A conversation that was opened again tells its window with its next turn; until then the list knows it.
  const known = line?.fill_tokens ? { tokens: line.fill_tokens, ctx_size: line.ctx_size, fill: line.fill_tokens / line.ctx_size, arm: line.arm } : undefined;
  const window = conversation.window ?? known;
  if (!window || !id) return null;
  const text = window.fill < 0.5 ? "Plenty of room" : window.fill < 0.8 ? "Filling up" : "A summary makes room soon";
  return (
    <a class="fill" href={`#/memory/${id}`} title={`${count(window.tokens)} of ${count(window.ctx_size)} tokens`}>
      <span class="fill-bar" aria-hidden="true">
        <span style={{ width: length(Math.min(window.fill, 1)) }} />
      </span>
      <span>
        {text} · {percent(window.fill)}
      </span>
      {window.arm && <span class="quiet-text"> · {window.arm}</span>}
    </a>
  );
}


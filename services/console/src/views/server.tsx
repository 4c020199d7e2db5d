// The service as it runs: the model, its memory, its speed. Live, as long as the view is open.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ServerState } from "../client.ts";
import { Loaded, type LoadedValue } from "../parts/loaded.tsx";
import { sentence, useShared } from "../state.ts";
import { buckets } from "./buckets.ts";
import { bytes, compact, count, length, percent, plural, seconds } from "../words.ts";

/** States that the curves show. */
const MOST_STATES = 120;

interface Seen {
  at_ms: number;
  state: ServerState;
}

export function Server(): JSX.Element {
  const { api } = useShared();
  const [seen, set_seen] = useState<Seen[]>([]);
  const [error, set_error] = useState<Error>();
  const [tries, set_tries] = useState(0);
  useEffect(() => {
    const ends = new AbortController();
    const take = (state: ServerState) => {
      set_error(undefined);
      set_seen((before) => [...before, { at_ms: Date.now(), state }].slice(-MOST_STATES));
    };
    api.watch(take, ends.signal).catch((error: Error) => {
      if (ends.signal.aborted) return;
      set_error(error);
      setTimeout(() => ends.signal.aborted || set_tries(tries + 1), 3000);
    });
    return () => ends.abort();
  }, [api, tries]);
  const loaded: LoadedValue<Seen[]> = { value: seen.length ? seen : undefined, error, again: () => set_tries(tries + 1) };
  return (
    <div class="page">
      <header class="page-head">
        <h1>Server</h1>
        <p>How the service is doing right now.</p>
      </header>
      {error && seen.length > 0 && (
        <p class="warning" role="alert">
          {sentence(error.message)} This page shows what it last knew.
        </p>
      )}
      <Loaded of={loaded}>{(seen) => <Now seen={seen} />}</Loaded>
    </div>
  );
}

const sum = (samples: ServerState["samples"], ...parts: string[]) =>
  Object.entries(samples).reduce((sum, [name, value]) => (parts.every((part) => name.includes(part)) ? sum + value : sum), 0);

function Now({ seen }: { seen: Seen[] }): JSX.Element {
  const { state } = seen.at(-1)!;
  const { samples, requests } = state;
  const waiting = Object.values(requests).reduce((sum, number) => sum + number, 0);
  const troubles = [state.trouble, state.store_trouble && `The disk did not take what was said last: ${state.store_trouble}`];
  const status = state.asleep ? "asleep, wakes with the first word" : state.ready ? "ready" : "not ready";
  const [reused, computed] = [sum(samples, "prompt_tokens_total", "reused"), sum(samples, "prompt_tokens_total", "computed")];
  return (
    <>
      {troubles.map((text) => text && <p key={text} class="warning" role="alert">{sentence(text)}</p>)}
      {state.notes.map((text) => (
        <p key={text} class="note-card">
          {sentence(text)}
        </p>
      ))}
      <section class="card" aria-labelledby="model-title">
        <div class="card-head">
          <h2 id="model-title">{state.model}</h2>
          <span class={`badge ${state.ready ? "" : "is-off"}`}>{status}</span>
        </div>
        {state.device && <p class="quiet-text">Computed by {state.device}</p>}
        <dl class="figures">
          <Figure name="Window" value={count(state.ctx_size)} unit={`tokens, preset ${state.preset}`} />
          <Figure name="Requests" value={count(waiting)} unit={`being worked on, ${count(requests.talk ?? 0)} that a person waits for`} />
          <Figure name="Connections" value={count(state.connections)} unit={`${plural(state.sessions_in_memory, "conversation")} in memory`} />
          <Figure name="Reused" value={reused + computed ? percent(reused / (reused + computed)) : "–"} unit="of all that was read" />
        </dl>
      </section>
      <Waits samples={samples} />
      <Speed seen={seen} />
      <MemoryUse state={state} />
      <States states={state.states} />
    </>
  );
}

function Figure({ name, value, unit }: { name: string; value: string; unit: string }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <span class="figure number">{value}</span> <span class="quiet-text">{unit}</span>
      </dd>
    </div>
  );
}

function Waits({ samples }: { samples: ServerState["samples"] }): JSX.Element {
  const all = buckets(samples, "reprise_first_token_seconds", 'priority="talk"');
  const total = all.reduce((sum, { count }) => sum + count, 0);
  const first = all.findIndex(({ count }) => count > 0);
  const last = all.findLastIndex(({ count }) => count > 0);
  const shown = all.slice(Math.max(first - 1, 0), last + 2);
  const most = Math.max(...shown.map(({ count }) => count), 1);
  const name = (upto: number) => (upto === Infinity ? "more" : seconds(upto * 1000));
  let below = 0;
  const middle = all.find(({ count }) => (below += count) * 2 >= total);
  return (
    <section class="card" aria-labelledby="waits-title">
      <div class="card-head">
        <h2 id="waits-title">Wait for the first word</h2>
        {middle && total > 0 && <span class="quiet-text">half of {plural(total, "answer")} began within {name(middle.upto)}</span>}
      </div>
      {total === 0 ? (
        <p class="quiet-text">Nobody has talked since the service started.</p>
      ) : (
        <ol class="bars" aria-label="Answers by their wait">
          {shown.map(({ upto, count }) => (
            <li key={upto}>
              <span class="bar-count number">{count || ""}</span>
              <span class="bar-fill" style={{ height: length(count / most) }} />
              <span class="bar-name number">{name(upto)}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** Tokens a second between two states. */
function rates(seen: Seen[]): number[] {
  const written = seen.map(({ at_ms, state }) => ({ at_ms, tokens: sum(state.samples, "generated_tokens_total") }));
  return written.slice(1).map(({ at_ms, tokens }, at) => {
    const before = written[at]!;
    return Math.max(((tokens - before.tokens) * 1000) / Math.max(at_ms - before.at_ms, 1), 0);
  });
}

function Speed({ seen }: { seen: Seen[] }): JSX.Element {
  const rate = rates(seen);
  const most = Math.max(...rate, 1);
  const points = rate.map((value, at) => `${(at / Math.max(MOST_STATES - 2, 1)) * 600},${76 - (value / most) * 70}`);
  const { samples } = seen.at(-1)!.state;
  const [answers, tokens] = [sum(samples, "tokens_per_second_count"), sum(samples, "tokens_per_second_sum")];
  return (
    <section class="card" aria-labelledby="speed-title">
      <div class="card-head">
        <h2 id="speed-title">Tokens written a second</h2>
        <span class="quiet-text number">
          now {compact(rate.at(-1) ?? 0)}
          {answers > 0 && `, in a reply ${compact(tokens / answers)}`}
        </span>
      </div>
      <svg class="curve" viewBox="0 0 600 80" preserveAspectRatio="none" role="img" aria-label={`Tokens a second, at most ${compact(most)}`}>
        <line x1="0" x2="600" y1="76" y2="76" class="axis" />
        {points.length > 1 && <polyline points={points.join(" ")} />}
      </svg>
    </section>
  );
}

const KINDS: Record<string, string> = {
  weights: "Model",
  program: "Program",
  requests: "Requests being read",
  pages: "Conversations",
  live: "Replies being made",
  kept: "Conversations that may be kept",
  snapshots: "Snapshots",
  moved_snapshots: "Snapshots beside the GPU",
  recurrence_logs: "Recent steps",
  heads: "Instructions",
};

function MemoryUse({ state }: { state: ServerState }): JSX.Element | null {
  const used = Object.entries(state.memory_bytes).filter(([, value]) => value > 0);
  const planned = Object.entries(state.planned_bytes).filter(([kind, value]) => kind !== "total" && value > 0);
  if (used.length + planned.length === 0) return null;
  const most = Math.max(...used.map(([, value]) => value), ...planned.map(([, value]) => value));
  const rows = (all: [string, number][], kind: string) =>
    all
      .toSorted(([, a], [, b]) => b - a)
      .map(([name, value]) => (
        <div key={name}>
          <dt>{KINDS[name] ?? name.replaceAll("_", " ")}</dt>
          <dd>
            <span class={`meter ${kind}`} aria-hidden="true">
              <span style={{ width: `max(2px, ${length(value / most)})` }} />
            </span>
            <span class="number">{bytes(value)}</span>
          </dd>
        </div>
      ));
  return (
    <section class="card" aria-labelledby="memory-title">
      <div class="card-head">
        <h2 id="memory-title">Memory</h2>
        {state.planned_bytes.total ? <span class="quiet-text number">of {bytes(state.planned_bytes.total)} that it may take</span> : null}
      </div>
      <div class="halves">
        <div>
          <h3>In use</h3>
          <dl class="meters">{rows(used, "used")}</dl>
        </div>
        {planned.length > 0 && (
          <div>
            <h3>Planned at the start</h3>
            <dl class="meters">{rows(planned, "planned")}</dl>
          </div>
        )}
      </div>
    </section>
  );
}

const TIERS: Record<string, { name: string; text: string }> = {
  memory: { name: "In memory", text: "the next turn begins at once" },
  disk: { name: "On disk", text: "read again by the first turn after a restart or a pause" },
};

/** Pasts that a turn goes on from, by where they are. */
function States({ states }: { states: ServerState["states"] }): JSX.Element {
  return (
    <section class="card" aria-labelledby="states-title">
      <div class="card-head">
        <h2 id="states-title">Conversations that need not be read again</h2>
      </div>
      <ul class="lines">
        {Object.entries(TIERS).map(([tier, { name, text }]) => (
          <li key={tier}>
            <span class="grow">
              {name} <span class="quiet-text">{text}</span>
            </span>
            <span class="number">
              {count(states[tier]?.states ?? 0)}, {bytes(states[tier]?.bytes ?? 0)}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

// What this browser keeps, the keys of the user, files, and the configuration that the service started with.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Key, SettingValue } from "../client.ts";
import { Icon } from "../icons.tsx";
import { keep, key as own_key, useKept } from "../keep.ts";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { open_file, parts_of, save } from "../parts/files.ts";
import { Loaded, useLoaded } from "../parts/loaded.tsx";
import { useShared } from "../state.ts";
import { moment, plural } from "../words.ts";

export function Settings(): JSX.Element {
  return (
    <div class="page">
      <header class="page-head">
        <h1>Settings</h1>
      </header>
      <ThisBrowser />
      <Files />
      <Keys />
      <Configuration />
    </div>
  );
}

function ThisBrowser(): JSX.Element {
  const state = useShared();
  const kept = useKept();
  const voices = useVoices();
  return (
    <section class="card" aria-labelledby="browser-title">
      <div class="card-head">
        <h2 id="browser-title">This browser</h2>
      </div>
      <div class="fields">
        <label class="field">
          <span>Colours</span>
          <select value={kept.theme} onChange={(event) => keep({ theme: event.currentTarget.value as typeof kept.theme })}>
            <option value="auto">As the system has them</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        {state.voice.hears && (
          <label class="field">
            <span>Language that you speak</span>
            <input placeholder={navigator.language} value={kept.language} onChange={(event) => keep({ language: event.currentTarget.value.trim() })} />
          </label>
        )}
        {state.voice.speaks && voices.length > 0 && (
          <label class="field">
            <span>Voice that reads replies</span>
            <select value={kept.voice} onChange={(event) => keep({ voice: event.currentTarget.value })}>
              <option value="">The browser's choice</option>
              {voices.map(({ voiceURI, name, lang }) => (
                <option key={voiceURI} value={voiceURI}>
                  {name} ({lang})
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {state.voice.speaks && (
        <label class="check">
          <input type="checkbox" checked={kept.speaks} onChange={(event) => keep({ speaks: event.currentTarget.checked })} />
          <span>Read replies aloud</span>
        </label>
      )}
      {own_key() && (
        <div class="row">
          <button onClick={() => state.leave()}>
            <Icon name="key" size={17} /> Leave, and forget the key here
          </button>
        </div>
      )}
    </section>
  );
}

function useVoices(): SpeechSynthesisVoice[] {
  const get = () => ("speechSynthesis" in globalThis ? speechSynthesis.getVoices() : []);
  const [voices, set] = useState(get);
  useEffect(() => {
    if (!("speechSynthesis" in globalThis)) return;
    const change = () => set(get());
    speechSynthesis.addEventListener("voiceschanged", change);
    return () => speechSynthesis.removeEventListener("voiceschanged", change);
  }, []);
  return voices;
}

function Files(): JSX.Element | null {
  const state = useShared();
  const [is_busy, set_busy] = useState(false);
  if (!state.may_list) return null;
  const export_all = async () => {
    set_busy(true);
    const texts: string[] = [];
    const lines = (await state.attempt(state.api.every_session())) ?? [];
    for (const line of lines.filter((line) => line.items > 0)) {
      const lines = await state.attempt(state.api.export(line.id));
      if (lines) texts.push(lines);
    }
    set_busy(false);
    if (texts.length) save(`reprise-${new Date().toISOString().slice(0, 10)}.jsonl`, texts.join(""));
  };
  const take_in = async () => {
    const lines = await open_file(".jsonl,application/jsonl,application/json,text/plain");
    if (!lines) return;
    set_busy(true);
    let taken = 0;
    const there = new Set(((await state.attempt(state.api.every_session())) ?? []).map(({ id }) => id));
    const parts = parts_of(lines, there);
    if (parts.length === 0) state.notice("All of these conversations are there already.");
    for (const part of parts) {
      const answer = await state.attempt(state.api.import(part));
      if (!answer) break;
      taken += answer.ids.length;
    }
    set_busy(false);
    if (taken > 0) state.notice(`${plural(taken, "conversation")} came in.`);
    state.refresh();
  };
  return (
    <section class="card" aria-labelledby="files-title">
      <div class="card-head">
        <h2 id="files-title">Your conversations as a file</h2>
      </div>
      <p class="quiet-text">An export holds everything that ever happened in a conversation, also what was edited. An import brings it back, here or on another server.</p>
      <div class="row">
        <button disabled={is_busy} onClick={() => void export_all()}>
          <Icon name="down_file" size={17} /> Export all
        </button>
        <button disabled={is_busy} onClick={() => void take_in()}>
          <Icon name="up_file" size={17} /> Import
        </button>
      </div>
    </section>
  );
}

function Keys(): JSX.Element {
  const state = useShared();
  const loaded = useLoaded(() => state.api.keys(), []);
  const [asks, set_asks] = useState<Key | "new">();
  const [made, set_made] = useState<string>();
  const revoke = async (key: Key) => {
    if (await state.attempt(state.api.revoke_key(key.id), "The key is revoked.")) loaded.again();
  };
  return (
    <section class="card" aria-labelledby="keys-title">
      <div class="card-head">
        <h2 id="keys-title">Keys</h2>
        <button onClick={() => set_asks("new")} disabled={!loaded.value}>
          <Icon name="plus" size={17} /> New key
        </button>
      </div>
      <Loaded of={loaded}>
        {({ data, user, own_key }) => {
          const valid = data.filter((key) => key.revoked_at_ms === null);
          return (
            <>
              <p class="quiet-text">
                Each opens the conversations of “{user}”. Keys for other people are made where the service runs: <code>reprise keys create --user NAME</code>.
              </p>
              <ul class="lines">
                {valid.map((key) => (
                  <li key={key.id}>
                    <Icon name="key" size={17} />
                    <span class="grow">
                      {key.name || "Without a name"}
                      {key.id === own_key && <span class="badge">this one</span>}
                      <br />
                      <span class="quiet-text">
                        {key.scopes.join(", ")} · made {moment(key.created_at_ms)}
                        {key.last_used_at_ms ? `, used ${moment(key.last_used_at_ms)}` : ", never used"}
                      </span>
                    </span>
                    <button class="quiet small" aria-label={`Revoke the key ${key.name || key.id}`} onClick={() => set_asks(key)}>
                      <Icon name="trash" size={17} />
                    </button>
                  </li>
                ))}
              </ul>
            </>
          );
        }}
      </Loaded>
      {asks === "new" && (
        <NewKey
          onClose={() => set_asks(undefined)}
          onMade={(key) => {
            set_made(key);
            loaded.again();
          }}
        />
      )}
      {asks !== undefined && asks !== "new" && (
        <Confirm title="Revoke this key?" text={`Whatever uses “${asks.name || asks.id}” is let in no more, at once.`} action="Revoke" onConfirm={() => void revoke(asks)} onClose={() => set_asks(undefined)} />
      )}
      {made && (
        <Dialog title="Your new key" onClose={() => set_made(undefined)}>
          <p>Keep it now. Only a hash of it is stored, and it is not shown again.</p>
          <p>
            <code>{made}</code>
          </p>
          <div class="row end">
            <button class="primary" onClick={() => set_made(undefined)}>
              I have it
            </button>
          </div>
        </Dialog>
      )}
    </section>
  );
}

const SCOPES = { talk: "Talk", sessions: "See, search and delete conversations and memories", admin: "See the server and make keys" };

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: (key: string) => void }): JSX.Element {
  const state = useShared();
  const [name, set_name] = useState("");
  const [scopes, set_scopes] = useState(["talk", "sessions"]);
  const make = async () => {
    const made = await state.attempt(state.api.make_key(name, scopes));
    onClose();
    if (made) onMade(made.key);
  };
  return (
    <Dialog title="New key" onClose={onClose}>
      <form class="stack" onSubmit={(event) => (event.preventDefault(), void make())}>
        <label class="field">
          <span>What it is for</span>
          <input value={name} placeholder="Kitchen tablet" onInput={(event) => set_name(event.currentTarget.value)} />
        </label>
        <fieldset>
          <legend>It may</legend>
          {Object.entries(SCOPES).map(([scope, words]) => (
            <label key={scope} class="check">
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                onChange={({ currentTarget }) => set_scopes(currentTarget.checked ? [...scopes, scope] : scopes.filter((other) => other !== scope))}
              />
              <span>{words}</span>
            </label>
          ))}
        </fieldset>
        <div class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="primary" disabled={scopes.length === 0}>
            Make it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Configuration(): JSX.Element {
  const { api } = useShared();
  const loaded = useLoaded(() => api.settings(), []);
  const [query, set_query] = useState("");
  const [shows_all, set_shows_all] = useState(false);
  const matches = ({ section, key, value, comment }: SettingValue) => `${section}.${key} ${value} ${comment}`.toLowerCase().includes(query.trim().toLowerCase());
  return (
    <section class="card" aria-labelledby="configuration-title">
      <div class="card-head">
        <h2 id="configuration-title">Configuration</h2>
      </div>
      <p class="quiet-text">
        As the service started with it. Change a value in your <code>reprise.toml</code>, and start the service again.
      </p>
      <Loaded of={loaded}>
        {({ data }) => {
          const shown = data.filter((value) => (query.trim() ? matches(value) : shows_all || value.is_chosen));
          const sections = Map.groupBy(shown, ({ section }) => section);
          return (
            <>
              <div class="row">
                <label class="search grow">
                  <Icon name="search" size={17} />
                  <input type="search" placeholder={`Search ${data.length} settings`} aria-label="Search the settings" value={query} onInput={(event) => set_query(event.currentTarget.value)} />
                </label>
                <label class="check">
                  <input type="checkbox" checked={shows_all} onChange={(event) => set_shows_all(event.currentTarget.checked)} />
                  <span>All, not only yours</span>
                </label>
              </div>
              {shown.length === 0 && <p class="quiet-text">{query.trim() ? "No setting is about this." : "Everything is as it comes: you have chosen nothing else."}</p>}
              {[...sections].map(([section, values]) => (
                <div key={section} class="section">
                  <h3>
                    <code>[{section}]</code>
                  </h3>
                  <dl class="settings">
                    {values.map((value) => (
                      <div key={value.key}>
                        <dt>
                          <code>
                            {value.key} = {value.value}
                          </code>
                          <span class={`badge ${value.is_chosen ? "" : "is-off"}`}>{value.origin}</span>
                        </dt>
                        <dd class="quiet-text">{value.comment}</dd>
                      </div>
                    ))}
                  </dl>
                </div>
              ))}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

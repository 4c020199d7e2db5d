// The screen before the page: opening, a key, or the reason why there is no way in.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { sentence, useShared } from "../state.ts";

export function Gate(): JSX.Element {
  const { gate, gate_message } = useShared();
  return (
    <main class="gate">
      <div class="gate-card">
        <img src="/console/icon.svg" width="44" height="44" alt="" />
        {gate === "opening" && <p class="quiet-text" role="status">Opening…</p>}
        {gate === "unreachable" && (
          <>
            <h1>Reprise does not answer</h1>
            <p>{sentence(gate_message || "the service cannot be reached")}</p>
            <p class="quiet-text" role="status">This page tries again every few seconds.</p>
          </>
        )}
        {(gate === "needs_key" || gate === "wrong_key" || gate === "may_not") && <KeyForm />}
      </div>
    </main>
  );
}

const TITLES = { needs_key: "A key, please", wrong_key: "That key is not right", may_not: "This key may not talk" };

function KeyForm(): JSX.Element {
  const state = useShared();
  const [key, set_key] = useState("");
  const [on_device, set_on_device] = useState(false);
  const [is_strange, set_strange] = useState(false);
  const gate = state.gate as keyof typeof TITLES;
  const is_wrong = gate !== "needs_key";
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        // A browser sends no other letters in a header. They come with a copy: dots of a cut text, signs without width.
        const is_sendable = /^[\x21-\x7e]+$/.test(key.trim());
        set_strange(!is_sendable);
        if (is_sendable) state.enter(key.trim(), on_device);
      }}
    >
      <h1>{TITLES[gate]}</h1>
      <p id="why">
        {is_wrong ? "The service does not let this key in. It may be mistyped, or revoked." : "This service opens with a key of your own."} The
        person who runs it makes one with <code>reprise keys create --user NAME</code>.
      </p>
      {is_strange && (
        <p role="alert">There are letters in it that no key has. Copy it again, without what stands around it.</p>
      )}
      <label class="field">
        <span>Key</span>
        <input
          type="password"
          autocomplete="current-password"
          spellcheck={false}
          placeholder="rk_…"
          autofocus
          value={key}
          aria-describedby="why"
          aria-invalid={is_wrong}
          onInput={(event) => set_key(event.currentTarget.value)}
        />
      </label>
      <label class="check">
        <input type="checkbox" checked={on_device} onChange={(event) => set_on_device(event.currentTarget.checked)} />
        <span>Keep it on this device. Otherwise it is forgotten with this tab.</span>
      </label>
      <button class="primary" disabled={!key.trim()}>
        Open
      </button>
    </form>
  );
}

// The people of the home, and what is remembered of each, with the words in which it was said.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Fact, Person, TakenRequests } from "../client.ts";
import { Icon } from "../icons.tsx";
import { Ask, Confirm } from "../parts/dialog.tsx";
import { Loaded, useLoaded } from "../parts/loaded.tsx";
import { address, usePlace } from "../routes.ts";
import { useShared } from "../state.ts";
import { moment, plural } from "../words.ts";

export function People(): JSX.Element {
  const { api } = useShared();
  const { of } = usePlace();
  const loaded = useLoaded(async () => {
    const [persons, all, taken] = await Promise.all([api.persons(), api.facts(), api.who()]);
    // A page of the newest may hold none of this person's.
    const own = all.has_more ? await api.facts(of ?? "") : undefined;
    const others = all.data.filter((fact) => own === undefined || fact.person !== (of ?? ""));
    const facts = [...(own?.data ?? []), ...others];
    return { persons: persons.data, facts, is_cut: own?.has_more ?? false, taken: taken.data };
  }, [of]);
  return (
    <div class="page">
      <header class="page-head">
        <h1>People</h1>
        <p>What is remembered of each, learned from what they said. It is known in their next conversations, and to nobody else.</p>
      </header>
      <Loaded of={loaded}>
        {({ persons, facts, is_cut, taken }) => {
          const names = [...new Set(["", ...persons.map(({ person }) => person), ...facts.map(({ person }) => person)])];
          // The home's name is empty, so its address has none: a person may be called "home".
          const chosen = of ?? "";
          return (
            <>
              <nav class="chips" aria-label="People">
                {names.map((name) => (
                  <a key={name} href={address({ view: "people", of: name })} aria-current={name === chosen ? "page" : undefined}>
                    {name || "The home"} <span class="number">{facts.filter((fact) => fact.person === name).length}</span>
                  </a>
                ))}
              </nav>
              {is_cut && (
                <p class="quiet-text">
                  The newest memories are shown. <code>reprise memories export</code> writes all of them.
                </p>
              )}
              <OfPerson name={chosen} persons={persons} facts={facts.filter((fact) => fact.person === chosen)} again={loaded.again} />
              <Taken lines={taken} />
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

interface OfPersonFields {
  name: string;
  persons: Person[];
  facts: Fact[];
  again: () => void;
}

function OfPerson({ name, persons, facts, again }: OfPersonFields): JSX.Element {
  const state = useShared();
  const [asks, set_asks] = useState<"add" | "delete">();
  const rooms = persons.filter((person) => person.person === name && (person.room || person.sessions > 0));
  const add = async (text: string) => {
    if (text.trim() && (await state.attempt(state.api.add_fact(name, text.trim()), "Remembered."))) again();
  };
  const remove = async () => {
    if (!(await state.attempt(state.api.remove_person(name), `${name} and all that was kept are gone.`))) return;
    state.refresh();
    again();
  };
  return (
    <>
      <section class="card" aria-labelledby="facts-title">
        <div class="card-head">
          <h2 id="facts-title">{name ? `What is remembered of ${name}` : "What is remembered of the home"}</h2>
          <button onClick={() => set_asks("add")}>
            <Icon name="plus" size={17} /> Add
          </button>
        </div>
        {facts.length === 0 && <p class="quiet-text">Nothing yet. Say “Remember that …” in a conversation, or add it here.</p>}
        <ul class="facts">
          {facts.map((fact) => (
            <FactEntry key={fact.id} fact={fact} again={again} />
          ))}
        </ul>
      </section>
      <section class="card" aria-labelledby="rooms-title">
        <div class="card-head">
          <h2 id="rooms-title">Where they spoke</h2>
        </div>
        {rooms.length === 0 ? (
          <p class="quiet-text">In no conversation that is kept.</p>
        ) : (
          <ul class="lines">
            {rooms.map(({ room, sessions, used_at_ms }) => (
              <li key={room}>
                <span class="grow">{room || "No room was named"}</span>
                <span class="quiet-text">
                  {plural(sessions, "conversation")}, last {moment(used_at_ms)}
                </span>
              </li>
            ))}
          </ul>
        )}
        {name && (
          <div class="row end">
            <button class="danger-text" onClick={() => set_asks("delete")}>
              Delete {name} with everything
            </button>
          </div>
        )}
      </section>
      {asks === "add" && (
        <Ask title="Remember something" label={name ? `A sentence about ${name}` : "A sentence about the home"} value="" action="Remember" lines={3} onAnswer={(text) => void add(text)} onClose={() => set_asks(undefined)} />
      )}
      {asks === "delete" && (
        <Confirm
          title={`Delete ${name}?`}
          text="Conversations, everything learned in them, and what was computed of them are deleted. There is no way back."
          action="Delete everything"
          onConfirm={() => void remove()}
          onClose={() => set_asks(undefined)}
        />
      )}
    </>
  );
}

/** For whom the last requests were taken, and by which rule. */
function Taken({ lines }: { lines: TakenRequests[] }): JSX.Element {
  return (
    <section class="card" aria-labelledby="taken-title">
      <div class="card-head">
        <h2 id="taken-title">For whom requests were taken</h2>
      </div>
      {lines.length === 0 && <p class="quiet-text">No request came since the service started.</p>}
      <ul class="lines">
        {lines.map((line) => (
          <li key={`${line.agent} ${line.key_id} ${line.person} ${line.room} ${line.rule}`}>
            <span class="grow">
              {[line.person || "The home's guest", line.room].filter(Boolean).join(", ")}
              <br />
              <span class="quiet-text">{why(line)}</span>
            </span>
            <span class="quiet-text">
              {line.agent.split(" ")[0] || "A client without a name"}, {plural(line.requests, "request")}, last {moment(line.last_at_ms)}
            </span>
          </li>
        ))}
      </ul>
      <p class="quiet-text">
        Rules in <code>[remember]</code> tell people and rooms apart: by key, path, header or area. They are in the{" "}
        <a href={address({ view: "settings" })}>settings</a>. Private requests are not listed.
      </p>
    </section>
  );
}

function why({ rule, because }: TakenRequests): string {
  return rule === null ? "No rule holds." : `Rule ${rule} holds: ${because.join(" and ") || "it has no condition"}.`;
}

function FactEntry({ fact, again }: { fact: Fact; again: () => void }): JSX.Element {
  const state = useShared();
  const [asks, set_asks] = useState<"correct" | "forget">();
  const act = async (work: Promise<unknown>, done: string) => {
    await state.attempt(work.then(() => true), done);
    again();
  };
  return (
    <li>
      <p class="fact">{fact.text}</p>
      <p class="quiet-text">
        {fact.words && fact.words !== fact.text ? <>“{fact.words}” · </> : ""}
        {fact.asked ? "kept because it was asked for" : "learned by the way"}
        {fact.said_by && fact.said_by !== fact.person ? `, from ${fact.said_by}` : ""} · {moment(fact.said_at_ms)}
        {fact.session_id && (
          <>
            {" · "}
            <a href={address({ view: "talk", of: fact.session_id })}>the conversation</a>
          </>
        )}
      </p>
      <div class="row">
        <button class="quiet small" onClick={() => set_asks("correct")}>
          <Icon name="edit" size={16} /> Correct
        </button>
        <button class="quiet small" onClick={() => set_asks("forget")}>
          <Icon name="trash" size={16} /> Forget
        </button>
      </div>
      {asks === "correct" && (
        <Ask title="Correct what is remembered" label="In your words" value={fact.text} action="Correct" lines={3} onAnswer={(text) => void (text.trim() && act(state.api.correct(fact, text.trim()), "Corrected."))} onClose={() => set_asks(undefined)} />
      )}
      {asks === "forget" && (
        <Confirm
          title="Forget this?"
          text={`“${fact.text}” is forgotten for good, and no search of the past finds where it was said.`}
          action="Forget"
          onConfirm={() => void act(state.api.forget(fact.id), "Forgotten.")}
          onClose={() => set_asks(undefined)}
        />
      )}
    </li>
  );
}


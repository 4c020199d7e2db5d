// The list of conversations: by day, with a search over everything that was said.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { SearchHit, SessionLine } from "../client.ts";
import { Icon } from "../icons.tsx";
import { address, go, usePlace } from "../routes.ts";
import { useShared } from "../state.ts";
import { brief, clock, day, moment } from "../words.ts";

export const title_of = (line: Pick<SessionLine, "title" | "first_words">) =>
  line.title || brief(line.first_words ?? "") || "New conversation";

const SEARCH_AFTER_MS = 200;

export function Conversations(): JSX.Element {
  const state = useShared();
  const [query, set_query] = useState("");
  const [hits, set_hits] = useState<SearchHit[] | undefined>();
  useEffect(() => {
    if (!query.trim()) return set_hits(undefined);
    let is_current = true;
    const timer = setTimeout(async () => {
      // The last word may go on.
      const asked = /[\s"*]$/.test(query) ? query : `${query}*`;
      const found = await state.attempt(state.api.search(asked));
      if (is_current) set_hits(found?.data ?? []);
    }, SEARCH_AFTER_MS);
    return () => {
      is_current = false;
      clearTimeout(timer);
    };
  }, [query]);
  return (
    <section class="list" aria-label="Conversations">
      <button class="new" onClick={() => go({ view: "talk" })}>
        <Icon name="plus" size={18} /> New conversation
      </button>
      {state.may_list ? (
        <>
          <label class="search">
            <Icon name="search" size={17} />
            <input
              type="search"
              placeholder="Search everything said"
              aria-label="Search everything that was said"
              value={query}
              onInput={(event) => set_query(event.currentTarget.value)}
            />
          </label>
          {hits ? <Hits hits={hits} /> : <ByDay lines={state.sessions.filter((line) => line.items > 0)} />}
        </>
      ) : (
        <p class="hint">This key may talk, but not see earlier conversations.</p>
      )}
    </section>
  );
}

function ByDay({ lines }: { lines: SessionLine[] }): JSX.Element {
  const state = useShared();
  const { of } = usePlace();
  if (lines.length === 0 && !state.has_older) return <p class="hint">What you say is kept here, so that you can come back to it.</p>;
  const days = Map.groupBy(lines, (line) => day(line.updated_at_ms));
  return (
    <div class="scroll">
      {[...days].map(([name, lines]) => (
        <div key={name}>
          <h2>{name}</h2>
          <ul>
            {lines.map((line) => (
              <li key={line.id}>
                <a href={address({ view: "talk", of: line.id })} aria-current={line.id === of ? "true" : undefined} title={moment(line.updated_at_ms)}>
                  <span class="name">{title_of(line)}</span>
                  {(line.person || line.room) && <span class="whose">{[line.person, line.room].filter(Boolean).join(" · ")}</span>}
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
      {state.has_older && (
        <button class="link older" onClick={() => state.older()}>
          Show older ones
        </button>
      )}
    </div>
  );
}

function Hits({ hits }: { hits: SearchHit[] }): JSX.Element {
  const { sessions } = useShared();
  if (hits.length === 0) return <p class="hint" role="status">Nothing was said with these words.</p>;
  const name = (hit: SearchHit) => {
    const line = sessions.find((line) => line.id === hit.session_id);
    return line ? title_of(line) : hit.session_title || "Conversation";
  };
  return (
    <ul class="scroll hits" aria-label="Found">
      {hits.map((hit) => (
        <li key={`${hit.session_id} ${hit.item_id}`}>
          <a href={address({ view: "talk", of: hit.session_id, item: hit.item_id })}>
            <span class="excerpt">
              {hit.role === "user" ? "You: " : ""}
              {hit.excerpt.split("**").map((piece, at) => (at % 2 ? <mark key={at}>{piece}</mark> : piece))}
            </span>
            <span class="whose">
              {name(hit)} · {day(hit.created_at_ms)}, {clock(hit.created_at_ms)}
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}

// The frame of the page: who may come in, the places to go to, notices.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons.tsx";
import { useKept } from "./keep.ts";
import { address, usePlace, type View } from "./routes.ts";
import { useShared } from "./state.ts";
import { Conversations } from "./parts/conversations.tsx";
import { Gate } from "./parts/gate.tsx";
import { Notices } from "./parts/notices.tsx";
import { Memory } from "./views/memory.tsx";
import { People } from "./views/people.tsx";
import { Server } from "./views/server.tsx";
import { Settings } from "./views/settings.tsx";
import { Talk } from "./views/talk.tsx";
import { Windows } from "./views/windows.tsx";

const PLACES: { view: View; icon: IconName; name: string }[] = [
  { view: "talk", icon: "talk", name: "Talk" },
  { view: "memory", icon: "memory", name: "Memory" },
  { view: "people", icon: "people", name: "People" },
  { view: "server", icon: "server", name: "Server" },
  { view: "windows", icon: "windows", name: "Windows" },
  { view: "settings", icon: "settings", name: "Settings" },
];

const VIEWS: Record<View, () => JSX.Element> = {
  talk: Talk,
  memory: Memory,
  people: People,
  server: Server,
  windows: Windows,
  settings: Settings,
};

export function App(): JSX.Element {
  const state = useShared();
  const place = usePlace();
  const { theme } = useKept();
  const [drawer, set_drawer] = useState(false);
  const main = useRef<HTMLElement>(null);
  const side = useRef<HTMLElement>(null);
  useEffect(() => void state.open(), []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  useEffect(() => {
    set_drawer(false);
    if (place.view === "talk" && state.gate === "open") state.show(place.of);
    document.title = place.view === "talk" ? "Reprise" : `${PLACES.find(({ view }) => view === place.view)?.name} · Reprise`;
  }, [place.view, place.of]);
  useEffect(() => {
    if (drawer) side.current?.querySelector<HTMLElement>(".only-narrow")?.focus();
  }, [drawer]);
  if (state.gate !== "open") return <Gate />;

  const session = state.conversation.id;
  const link = (view: View) => address({ view, of: view === "talk" || view === "memory" ? session : undefined });
  const View = VIEWS[place.view];
  return (
    <div class={`shell ${place.view === "talk" ? "with-list" : ""}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <aside
        ref={side}
        onClick={(event) => (event.target as Element).closest("a, .new") && set_drawer(false)}
        onKeyDown={(event) => event.key === "Escape" && set_drawer(false)}
        class={`side ${drawer ? "is-open" : ""}`} aria-label="Conversations and places">
        <div class="brand">
          <img src="/console/icon.svg" width="26" height="26" alt="" />
          <span>Reprise</span>
          <button class="quiet only-narrow" aria-label="Close the list" onClick={() => set_drawer(false)}>
            <Icon name="close" />
          </button>
        </div>
        <nav class="places" aria-label="Places">
          {PLACES.map(({ view, icon, name }) => (
            <a key={view} href={link(view)} aria-current={place.view === view ? "page" : undefined}>
              <Icon name={icon} />
              <span>{name}</span>
            </a>
          ))}
        </nav>
        <Conversations />
      </aside>
      {drawer && <div class="shade" onClick={() => set_drawer(false)} />}
      <main id="main" ref={main} tabIndex={place.view === "talk" ? -1 : 0} class={`view view-${place.view}`}>
        <View key={place.view} />
      </main>
      <nav class="tabs" aria-label="Places">
        {PLACES.map(({ view, icon, name }) => (
          <a key={view} href={link(view)} aria-current={place.view === view ? "page" : undefined}>
            <Icon name={icon} size={22} />
            <span>{name}</span>
          </a>
        ))}
      </nav>
      <button class="quiet open-list" aria-label="Show the conversations" aria-expanded={drawer} onClick={() => set_drawer(true)}>
        <Icon name="menu" />
      </button>
      <Notices />
    </div>
  );
}

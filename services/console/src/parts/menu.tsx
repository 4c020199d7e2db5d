import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "../icons.tsx";

export interface MenuEntry {
  name: string;
  icon: IconName;
  act: () => void;
  is_danger?: boolean;
}

/** A button that opens a list of actions; arrows move in it, Escape closes it. */
export function Menu({ label, entries }: { label: string; entries: MenuEntry[] }): JSX.Element {
  const [is_open, set_open] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const items = () => [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
  useEffect(() => {
    if (!is_open) return;
    items()[0]?.focus();
    const outside = (event: Event) => root.current?.contains(event.target as Node) || set_open(false);
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [is_open]);
  const key = (event: KeyboardEvent) => {
    const [all, step] = [items(), { ArrowDown: 1, ArrowUp: -1 }[event.key]];
    if (event.key === "Escape" || event.key === "Tab") {
      set_open(false);
      if (event.key === "Escape") root.current?.querySelector("button")?.focus();
    } else if (step) {
      event.preventDefault();
      all.at((all.indexOf(document.activeElement as HTMLElement) + step) % all.length)?.focus();
    }
  };
  return (
    <div class="menu" ref={root} onKeyDown={key}>
      <button class="quiet" aria-label={label} aria-haspopup="menu" aria-expanded={is_open} onClick={() => set_open(!is_open)}>
        <Icon name="more" />
      </button>
      {is_open && (
        <div role="menu" aria-label={label}>
          {entries.map(({ name, icon, act, is_danger }) => (
            <button key={name} role="menuitem" tabIndex={-1} class={is_danger ? "danger-text" : ""} onClick={() => (set_open(false), act())}>
              <Icon name={icon} size={18} /> {name}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

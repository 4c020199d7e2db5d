// What this browser keeps: the key, how the page looks, whether replies are spoken.
import { useEffect, useState } from "preact/hooks";

export interface Kept {
  theme: "auto" | "light" | "dark";
  speaks: boolean;
  language: string;
  voice: string;
  last_session: string;
}

const FIRST: Kept = { theme: "auto", speaks: false, language: "", voice: "", last_session: "" };
const NAME = "reprise";
const KEY = "reprise-key";
const changed = new EventTarget();

/** A browser that keeps nothing throws instead. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

function read(): Kept {
  const kept = attempt(() => JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Kept>);
  return { ...FIRST, ...kept };
}

let kept = read();

export const now = () => kept;

// Another tab of this browser has changed something.
globalThis.addEventListener?.("storage", ({ key }) => {
  if (key !== NAME) return;
  kept = read();
  changed.dispatchEvent(new Event("change"));
});

export function keep(change: Partial<Kept>): void {
  kept = { ...kept, ...change };
  attempt(() => localStorage.setItem(NAME, JSON.stringify(kept)));
  changed.dispatchEvent(new Event("change"));
}

export function useKept(): Kept {
  const [value, set] = useState(kept);
  useEffect(() => {
    const change = () => set(kept);
    changed.addEventListener("change", change);
    return () => changed.removeEventListener("change", change);
  }, []);
  return value;
}

export const key = () => attempt(() => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY)) || undefined;

/** Keeps the key while this page is open, or on this device. */
export function keep_key(value: string, on_device: boolean): void {
  forget_key();
  attempt(() => (on_device ? localStorage : sessionStorage).setItem(KEY, value));
}

export function forget_key(): void {
  attempt(() => sessionStorage.removeItem(KEY));
  attempt(() => localStorage.removeItem(KEY));
}

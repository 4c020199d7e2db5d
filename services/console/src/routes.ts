// Places of the page, which stand behind the `#` of its address.
import { useEffect, useState } from "preact/hooks";

export type View = "talk" | "memory" | "people" | "server" | "windows" | "settings";
export interface Place {
  view: View;
  /** Session, person or experiment. */
  of?: string;
  /** Message of the session that is looked for. */
  item?: string;
}

const VIEWS: View[] = ["talk", "memory", "people", "server", "windows", "settings"];

/** Address that a person shortened or mistyped: what cannot be decoded is taken as it stands. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function place_of(hash: string): Place {
  const [view, of, item] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (VIEWS.includes(view as View)) return { view: view as View, of: of || undefined, item: item || undefined };
  // An older page wrote the session alone.
  return { view: "talk", of: view?.startsWith("sess_") ? view : undefined };
}

export const address = ({ view, of, item }: Place) =>
  `#/${[view, of, item].flatMap((part) => (part ? [encodeURIComponent(part)] : [])).join("/")}`;

export function go(place: Place): void {
  location.hash = address(place);
}

/** Replaces the address without another entry in the browser's history. */
export function settle(place: Place): void {
  history.replaceState(null, "", address(place));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function usePlace(): Place {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const change = () => set(location.hash);
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return place_of(hash);
}

// Something that is asked of the service, and what a view shows while it comes or when it does not.
import type { JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../client.ts";
import { sentence } from "../state.ts";

export interface LoadedValue<T> {
  value?: T;
  error?: Error;
  again: () => void;
}

/** Asks when a view opens and when `about` changes. What was there stays until the next answer. */
export function useLoaded<T>(ask: () => Promise<T>, about: unknown[]): LoadedValue<T> {
  const [loaded, set] = useState<{ value?: T; error?: Error }>({});
  const asked = useRef(0);
  const again = useCallback(() => {
    const mine = ++asked.current;
    const is_newest = () => mine === asked.current;
    ask().then(
      (value) => is_newest() && set({ value }),
      (error: Error) => is_newest() && set(({ value }) => ({ value, error })),
    );
  }, about);
  useEffect(() => {
    again();
    return () => void asked.current++;
  }, about);
  return { ...loaded, again };
}

interface LoadedFields<T> {
  of: LoadedValue<T>;
  children: (value: T) => JSX.Element;
}

export function Loaded<T>({ of, children }: LoadedFields<T>): JSX.Element {
  if (of.value !== undefined) return children(of.value);
  if (!of.error) return <p class="quiet-text loading" role="status">Loading…</p>;
  return <Problem error={of.error} again={of.again} />;
}

function Problem({ error, again }: { error: Error; again: () => void }): JSX.Element {
  const { status } = error instanceof ApiError ? error : { status: 0 };
  if (status === 403) {
    return (
      <Empty
        title="This key may not see it"
        text="It may talk. A key with the scope “sessions” sees conversations and what is remembered, one with “admin” the server."
        link={{ name: "Settings", to: "#/settings" }}
      />
    );
  }
  return (
    <div class="card" role="alert">
      <p>{sentence(error.message)}</p>
      <button onClick={again}>Try again</button>
    </div>
  );
}

export function Empty({ title, text, link }: { title: string; text: string; link?: { name: string; to: string } }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p>{text}</p>
      {link && (
        <a class="button" href={link.to}>
          {link.name}
        </a>
      )}
    </div>
  );
}

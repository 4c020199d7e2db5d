import type { JSX } from "preact";
import { Icon } from "../icons.tsx";
import { useShared } from "../state.ts";

/** Messages that come and go. Screen readers say them at once. */
export function Notices(): JSX.Element {
  const state = useShared();
  return (
    <div class="notices" role="status" aria-live="polite">
      {state.notices.map(({ id, text, kind }) => (
        <div key={id} class={`notice ${kind}`}>
          <span>{text}</span>
          <button class="quiet" aria-label="Dismiss" onClick={() => state.dismiss(id)}>
            <Icon name="close" size={16} />
          </button>
        </div>
      ))}
    </div>
  );
}

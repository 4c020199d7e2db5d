import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** A question over the page. The browser keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  // A press that begins and ends beside the box closes it. One that marks text and ends there does not.
  const began_beside = useRef(false);
  const is_beside = ({ target, clientX, clientY }: MouseEvent) => {
    const box = dialog.current?.getBoundingClientRect();
    if (!box || target !== dialog.current) return false;
    return clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom;
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onClose={onClose}
      onPointerDown={(event) => (began_beside.current = is_beside(event))}
      onClick={(event) => began_beside.current && is_beside(event) && dialog.current?.close()}
    >
      <div class="stack">
        <h2 id="dialog-title">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

interface ConfirmFields {
  title: string;
  text: string;
  action: string;
  onConfirm: () => void;
  onClose: () => void;
}

export function Confirm({ title, text, action, onConfirm, onClose }: ConfirmFields): JSX.Element {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <div class="row end">
        <button onClick={onClose}>Cancel</button>
        <button class="danger" onClick={() => (onClose(), onConfirm())}>
          {action}
        </button>
      </div>
    </Dialog>
  );
}

interface AskFields {
  title: string;
  label: string;
  value: string;
  action: string;
  lines?: number;
  onAnswer: (text: string) => void;
  onClose: () => void;
}

/** Asks for a text. */
export function Ask({ title, label, value, action, lines = 1, onAnswer, onClose }: AskFields): JSX.Element {
  const field = useRef<HTMLTextAreaElement & HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  const fields = { ref: field, defaultValue: value };
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          const text = field.current?.value ?? "";
          onClose();
          onAnswer(text);
        }}
      >
        <label class="field">
          <span>{label}</span>
          {lines > 1 ? <textarea rows={lines} {...fields} /> : <input {...fields} />}
        </label>
        <div class="row end">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button class="primary">{action}</button>
        </div>
      </form>
    </Dialog>
  );
}

// Text of a model as a page: paragraphs, lists, code, and bold words. It makes elements and never reads HTML, and it makes no links.
import type { ComponentChild, JSX } from "preact";

type Block =
  | { kind: "text" | "code" | "heading"; text: string }
  | { kind: "list"; is_numbered: boolean; items: string[]; numbers: number[] };

const BULLET = /^\s*(?:[-*•]|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*)$/;
const FENCE = /^\s*```[^`]*$/;
const FENCE_END = /^\s*```+\s*$/;

export function blocks(text: string): Block[] {
  const found: Block[] = [];
  let code: string[] | undefined;
  for (const line of text.split("\n")) {
    const [last, bullet, heading] = [found.at(-1), BULLET.exec(line), HEADING.exec(line)];
    if (code && FENCE_END.test(line)) {
      found.push({ kind: "code", text: code.join("\n") });
      code = undefined;
    } else if (code) {
      code.push(line);
    } else if (FENCE.test(line)) {
      code = [];
    } else if (bullet) {
      const is_numbered = bullet[1] !== undefined;
      const [item, number] = [bullet[2] ?? "", Number(bullet[1] ?? 0)];
      if (last?.kind === "list" && last.is_numbered === is_numbered) {
        last.items.push(item);
        last.numbers.push(number);
      } else found.push({ kind: "list", is_numbered, items: [item], numbers: [number] });
    } else if (heading) {
      found.push({ kind: "heading", text: heading[1] ?? "" });
    } else if (!line.trim()) {
      found.push({ kind: "text", text: "" });
    } else if (last?.kind === "text" && last.text) {
      last.text += `\n${line}`;
    } else {
      found.push({ kind: "text", text: line });
    }
  }
  if (code) found.push({ kind: "code", text: code.join("\n") });
  return found.filter((block) => block.kind !== "text" || block.text);
}

const INLINE = /(\*\*[^*\n]+\*\*|`[^`\n]+`)/;

export function inline(text: string): ComponentChild[] {
  return text.split(INLINE).map((piece, at) => {
    if (at % 2 === 0) return piece;
    return piece.startsWith("**") ? <strong key={at}>{piece.slice(2, -2)}</strong> : <code key={at}>{piece.slice(1, -1)}</code>;
  });
}

export function Prose({ text }: { text: string }): JSX.Element {
  return (
    <div class="prose">
      {blocks(text).map((block, at) => {
        switch (block.kind) {
          case "code":
            return <pre key={at}>{block.text}</pre>;
          case "heading":
            return (
              <p key={at}>
                <strong>{inline(block.text)}</strong>
              </p>
            );
          case "list": {
            // The number that stands there may be the answer: a day, a year, a place in a longer list.
            const items = block.items.map((item, n) => (
              <li key={n} value={block.is_numbered ? block.numbers[n] : undefined}>
                {inline(item)}
              </li>
            ));
            return block.is_numbered ? <ol key={at}>{items}</ol> : <ul key={at}>{items}</ul>;
          }
          default:
            return <p key={at}>{inline(block.text)}</p>;
        }
      })}
    </div>
  );
}

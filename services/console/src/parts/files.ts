/** Gives the user a file with this text. */
export function save(name: string, text: string, kind = "application/jsonl"): void {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Asks the user for a file, and reads it. */
export function open_file(accept: string): Promise<string | undefined> {
  const input = Object.assign(document.createElement("input"), { type: "file", accept });
  return new Promise((done) => {
    input.onchange = () => void (input.files?.[0]?.text().then(done) ?? done(undefined));
    input.oncancel = () => done(undefined);
    input.click();
  });
}

/** Length of what is sent at once: a service takes 16 MiB (`limits.body_bytes`). */
const PART_CHARS = 4_000_000;

/** Conversations of an export. */
const conversations_of = (lines: string) => lines.split(/^(?=\{"type":"session")/m);

function id_of(conversation: string): string | undefined {
  try {
    return (JSON.parse(conversation.split("\n", 1)[0] ?? "") as { id?: string }).id;
  } catch {
    return undefined;
  }
}

/** Parts of an export, each of whole conversations, so that a large one is taken, too. Without those that are there: the service
 * would refuse what stands behind them. */
export function parts_of(lines: string, there: Set<string> = new Set()): string[] {
  const parts: string[] = [""];
  const missing = conversations_of(lines).filter((conversation) => !there.has(id_of(conversation) ?? ""));
  for (const conversation of missing) {
    const [last, at] = [parts.at(-1) ?? "", parts.length - 1];
    if (last && last.length + conversation.length > PART_CHARS) parts.push(conversation);
    else parts[at] = last + conversation;
  }
  return missing.length > 0 ? parts : [];
}

/** Name of a file without letters that file systems refuse. */
export const file_name = (text: string) => text.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation";

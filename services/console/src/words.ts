// Numbers and times as people read them.

const whole = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

export const count = (number: number) => whole.format(Math.round(number));
export const compact = (number: number) => short.format(number);
/** A share as a length in CSS. */
export const length = (share: number) => `${(share * 100).toFixed(2)}%`;
export const percent = (share: number) => `${Math.round(share * 100)} %`;

export function seconds(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

export function bytes(number: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [Math.abs(number), 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${number < 0 ? "-" : ""}${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function day(ms: number): string {
  const then = new Date(ms);
  const days = Math.round((start_of_day(Date.now()) - start_of_day(ms)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return then.toLocaleDateString(undefined, { weekday: "long" });
  if (days < 31) return "This month";
  return then.toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

export const moment = (ms: number) =>
  new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

export const clock = (ms: number) => new Date(ms).toLocaleTimeString(undefined, { timeStyle: "short" });

function start_of_day(ms: number): number {
  return new Date(ms).setHours(0, 0, 0, 0);
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** First line of a text, cut at a word. */
export function brief(text: string, most = 60): string {
  const line = text.trim().split("\n")[0] ?? "";
  if (line.length <= most) return line;
  const cut = line.slice(0, most);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), most / 2))}…`;
}

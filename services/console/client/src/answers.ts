// Answers of the service's other routes. Those that the service describes come from its own document (`schemas.ts`); the rest is what
// its store writes.
import type { TurnsAnswer } from "./schemas.ts";

export type { ServerState, TurnsAnswer, WindowAnswer } from "./schemas.ts";

export type TurnNumbers = TurnsAnswer["data"][number];

export interface ListPage<Row> {
  object: "list";
  data: Row[];
  has_more: boolean;
}

export interface SessionLine {
  id: string;
  person?: string;
  room?: string;
  is_remembered?: boolean;
  preset: string;
  ctx_size: number;
  experiment: string | null;
  arm: string | null;
  title: string;
  first_words: string | null;
  items: number;
  fill_tokens: number | null;
  created_at_ms: number;
  updated_at_ms: number;
}

export interface SearchHit {
  session_id: string;
  session_title: string;
  item_id: string;
  role: string | null;
  /** Words around the hit, which stands between `**`. */
  excerpt: string;
  created_at_ms: number;
}

export interface StoredItem {
  seq: number;
  item_id: string;
  body: StoredBody;
  status: "in_progress" | "completed" | "interrupted" | "cancelled";
  response: string | null;
  created_at_ms: number;
}

export type StoredBody =
  | { kind: "message"; role: "system" | "user" | "assistant"; parts: { text: string }[]; speaker?: { name: string } }
  | { kind: "function_call"; call_id: string; name: string; arguments: string }
  | { kind: "function_call_output"; call_id: string; output: string }
  | { kind: "reasoning" };

export interface Summary {
  version: number;
  kind: "summary" | "drop";
  made_by: "model" | "user" | "fallback";
  based_on: number | null;
  from_item: string;
  to_item: string;
  text: string;
  checks: Record<string, unknown>;
  tokens_before: number;
  tokens_after: number;
  created_at_ms: number;
  applied_at_ms: number | null;
  undone_at_ms: number | null;
  in_use: boolean;
}

export interface Pin {
  id: string;
  text: string;
  source_item: string | null;
  made_by: string;
  created_at_ms: number;
}

export interface Person {
  /** Empty: the home's guest. */
  person: string;
  room: string;
  sessions: number;
  used_at_ms: number;
}

/** Requests of one client, one behind the other, that were taken for the same person and room. */
export interface TakenRequests {
  agent: string;
  key_id: string | null;
  /** Empty: the home's guest. */
  person: string;
  room: string;
  /** Rule of `[remember] who`, counted from 1; null: no rule holds. */
  rule: number | null;
  because: string[];
  requests: number;
  last_at_ms: number;
}

export interface Fact {
  id: string;
  /** Empty: the home. */
  person: string;
  about: string;
  text: string;
  asked: boolean;
  made_by?: string;
  found_by?: string;
  session_id: string | null;
  item_id: string | null;
  /** Words in which it was said. */
  words: string;
  said_by: string;
  said_at_ms: number;
  uses: number;
  replaced_by: string | null;
}

export interface SettingValue {
  section: string;
  key: string;
  value: string;
  is_chosen: boolean;
  origin: string;
  comment: string;
}

export interface Key {
  id: string;
  user: string;
  name: string;
  scopes: string[];
  created_at_ms: number;
  revoked_at_ms: number | null;
  last_used_at_ms: number | null;
}

export interface ArmCell {
  mean: number;
  median: number;
  p95: number;
  n: number;
}

export interface ArmDifference {
  estimate: number;
  low: number;
  high: number;
  relative: number | null;
  verdict: "too_few" | "no_difference_shown" | "higher" | "lower";
}

export interface ExperimentRow {
  metric: string;
  words: string;
  unit: "ms" | "tokens_per_second" | "tokens" | "times" | "share" | "bytes";
  statistic: "median" | "p95" | "mean";
  better: "lower" | "higher" | "neither";
  cells: (ArmCell | null)[];
  differences: (ArmDifference | null)[];
}

export interface ExperimentReport {
  name: string;
  turns: number;
  from_ms: number | null;
  to_ms: number | null;
  arms: string[];
  unit: "users" | "sessions" | "pairs" | "own_sessions" | "own_days";
  level: number;
  traffic: { users: number; sessions: number; turns: number; turns_per_session: number }[];
  rows: ExperimentRow[];
  warnings: string[];
}

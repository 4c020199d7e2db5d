// The service's other routes: conversations, what is remembered, the window, the server.
import type {
  ExperimentReport, Fact, Key, ListPage, Pin, Person, SearchHit, ServerState, SessionLine, SettingValue, StoredItem, Summary,
  TakenRequests, TurnsAnswer, WindowAnswer,
} from "./answers.ts";

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

export interface ApiOptions {
  url: string;
  key?: string;
}

export class Api {
  constructor(readonly options: ApiOptions) {}

  sessions = (limit = 100, before?: number) => this.get<ListPage<SessionLine> & { before: number | null }>("/v1/sessions", { limit, before });
  /** Lists all conversations, page after page. */
  async every_session(): Promise<SessionLine[]> {
    const all = new Map<string, SessionLine>();
    for (let before: number | undefined, has_more = true; has_more; ) {
      const page = await this.sessions(200, before);
      for (const line of page.data) all.set(line.id, line);
      [before, has_more] = [page.before ?? undefined, page.has_more];
    }
    return [...all.values()];
  }
  search = (q: string, limit = 40) => this.get<ListPage<SearchHit>>("/v1/sessions/search", { q, limit });
  items = (id: string, after?: string) => this.get<ListPage<StoredItem>>(`/v1/sessions/${part(id)}/items`, { after });
  rename = (id: string, title: string) => this.post(`/v1/sessions/${part(id)}`, { title });
  remove = (id: string) => this.delete(`/v1/sessions/${part(id)}`);
  export = (id: string) => this.text(`/v1/sessions/${part(id)}/export`);
  import = (lines: string) => this.ask<{ ids: string[] }>("POST", "/v1/sessions/import", lines);
  feedback = (session_id: string, response_id: string, value: number) =>
    this.post("/v1/feedback", { session_id, response_id, value });

  window = (id: string) => this.get<WindowAnswer>(`/v1/sessions/${part(id)}/window`);
  turns = (id: string, limit = 100) => this.get<TurnsAnswer>(`/v1/sessions/${part(id)}/turns`, { limit });
  summaries = (id: string) => this.get<ListPage<Summary>>(`/v1/sessions/${part(id)}/summaries`);
  edit_summary = (id: string, version: number, text: string) =>
    this.post(`/v1/sessions/${part(id)}/summaries`, { version, text });
  undo_summary = (id: string, version: number) => this.post(`/v1/sessions/${part(id)}/summaries/undo`, { version });
  redo_summary = (id: string, version: number) => this.post(`/v1/sessions/${part(id)}/summaries/redo`, { version });
  pins = (id: string) => this.get<ListPage<Pin>>(`/v1/sessions/${part(id)}/pins`);
  add_pin = (id: string, text: string) => this.post(`/v1/sessions/${part(id)}/pins`, { text });
  remove_pin = (id: string, pin: string) => this.delete(`/v1/sessions/${part(id)}/pins/${part(pin)}`);

  persons = () => this.get<ListPage<Person>>("/v1/persons");
  who = () => this.get<ListPage<TakenRequests>>("/v1/who");
  remove_person = (name: string) => this.delete(`/v1/persons/${part(name)}`);
  facts = (person?: string, past = false, limit = 200) => this.get<ListPage<Fact>>("/v1/memories", { person, past, limit });
  fact = (id: string) => this.get<Fact>(`/v1/memories/${part(id)}`);
  add_fact = (person: string, text: string) => this.post<Fact>("/v1/memories", { person, text });
  forget = (id: string) => this.delete(`/v1/memories/${part(id)}`);

  /** Puts other words in the place of a fact, also where the service would not see that both are about the same. */
  async correct(fact: Fact, text: string): Promise<void> {
    await this.add_fact(fact.person, text);
    const old = await this.fact(fact.id);
    if (!old.replaced_by) await this.forget(fact.id);
  }

  server = () => this.get<ServerState>("/v1/server");
  settings = () => this.get<ListPage<SettingValue>>("/v1/settings");
  keys = () => this.get<ListPage<Key> & { own_key: string | null; user: string }>("/v1/keys");
  make_key = (name: string, scopes: string[]) => this.post<Key & { key: string }>("/v1/keys", { name, scopes });
  revoke_key = (id: string) => this.delete(`/v1/keys/${part(id)}`);
  experiments = () => this.get<ListPage<string> & { configured: string | null }>("/v1/experiments");
  experiment = (name: string) => this.get<ExperimentReport>(`/v1/experiments/${part(name)}`);

  /** Gives each state of the service to `take` until `signal`; asks again where the stream ends. */
  async watch(take: (state: ServerState) => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const answer = await this.fetch("GET", "/v1/server/events", undefined, signal);
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
        text += read.value;
        const events = text.split("\n\n");
        text = events.pop() ?? "";
        for (const event of events) take(JSON.parse(event.slice("data: ".length)) as ServerState);
      }
    }
  }

  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await (await this.fetch(method, path, body)).json()) as T;
  }

  async text(path: string): Promise<string> {
    return (await this.fetch("GET", path)).text();
  }

  private get<T>(path: string, query: Record<string, string | number | boolean | undefined> = {}): Promise<T> {
    const asked = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
    const tail = new URLSearchParams(asked).toString();
    return this.ask<T>("GET", tail ? `${path}?${tail}` : path);
  }

  private post<T = unknown>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("POST", path, body);
  }

  private delete(path: string): Promise<unknown> {
    return this.ask("DELETE", path);
  }

  private async fetch(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
    const { url, key } = this.options;
    const headers: Record<string, string> = key ? { authorization: `Bearer ${key}` } : {};
    if (body !== undefined) headers["content-type"] = typeof body === "string" ? "application/jsonl" : "application/json";
    const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const answer = await fetch(new URL(path, url), { method, headers, body: sent, signal }).catch((cause: unknown) => {
      if (signal?.aborted) throw cause;
      throw new ApiError(0, "unreachable", "the service cannot be reached");
    });
    if (answer.ok) return answer;
    const told = (await answer.json().catch(() => null)) as { error?: { code?: string; message?: string } } | null;
    throw new ApiError(answer.status, told?.error?.code ?? "failed", told?.error?.message ?? answer.statusText);
  }
}

const part = encodeURIComponent;

// Writes the client library's types from what the server promises: `client/src/events.ts` from the schema of the websocket's events,
// `client/src/schemas.ts` from the answers that its API document describes. The server's tests keep both promises as snapshots,
// which are what is read here. `--check` only compares.
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const doors = new URL("../../doors/src/", import.meta.url);
const EVENTS = "openai_realtime/snapshots/doors__openai_realtime__tests__the_schema_is_a_promise.snap";
const DOCUMENT = "routes/snapshots/doors__routes__openapi__tests__the_document_is_a_promise.snap";

function snapshot(name) {
  const text = readFileSync(new URL(name, doors), "utf8");
  return JSON.parse(text.slice(text.indexOf("\n---\n", 3) + 5));
}

const banner = (route) => `// Written by \`npm run types\` from the server's schema (${route}). Do not edit.
// Over 600 lines because every event of the protocol is here.`;

/** `conversation.item.added` becomes `ConversationItemAdded`. */
const pascal = (name) => name.split(/[^A-Za-z0-9]+/).map((piece) => piece.charAt(0).toUpperCase() + piece.slice(1)).join("");

/** A reference with fields beside it stands for both, which the generator reads only as `allOf`. */
function both(value) {
  if (Array.isArray(value)) return value.map(both);
  if (value === null || typeof value !== "object") return value;
  const inner = Object.fromEntries(Object.entries(value).map(([key, field]) => [key, both(field)]));
  if (!inner.$ref || !inner.properties) return inner;
  const { $ref, ...own } = inner;
  return { allOf: [{ $ref }, own] };
}

function named(schema, name) {
  const titled = Object.entries(both(schema.$defs ?? {})).map(([key, value]) => [key, { ...value, title: pascal(key) }]);
  return { ...schema, title: name, $defs: Object.fromEntries(titled) };
}

async function types(schema, name, route) {
  const made = await compile(named(schema, name), name, {
    bannerComment: banner(route),
    additionalProperties: false,
    unreachableDefinitions: true,
    format: false,
    unknownAny: true,
  });
  return made.endsWith("\n") ? made : `${made}\n`;
}

/** Answers that have a schema, by their route. */
const ANSWERS = {
  WindowAnswer: "/v1/sessions/{session_id}/window",
  TurnsAnswer: "/v1/sessions/{session_id}/turns",
  ServerState: "/v1/server",
};

function answers(document) {
  const schema = (path) => document.paths[path].get.responses["200"].content["application/json"].schema;
  const $defs = Object.fromEntries(Object.entries(ANSWERS).map(([name, path]) => [name, schema(path)]));
  return { oneOf: Object.keys($defs).map((name) => ({ $ref: `#/$defs/${name}` })), $defs };
}

const written = {
  "../client/src/events.ts": await types(snapshot(EVENTS), "RealtimeEvent", "/v1/realtime/schema.json"),
  "../client/src/schemas.ts": await types(answers(snapshot(DOCUMENT)), "Answer", "/openapi.json"),
};
for (const [name, text] of Object.entries(written)) {
  const file = new URL(name, import.meta.url);
  if (!process.argv.includes("--check")) {
    writeFileSync(file, text);
  } else if (readFileSync(file, "utf8") !== text) {
    console.error(`${name} is not what the server's schema says: run \`npm run types\``);
    process.exit(1);
  }
}

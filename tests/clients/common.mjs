// What the scripts for node share: where the service is, a deadline, and the packages.

import { createRequire } from "node:module";
import { join } from "node:path";

// Scripts take seconds; this is for a machine that is busy with something else.
const DEADLINE_MS = 60_000;
// A random model ends when it likes: a reply that has to be long is asked for again.
export const ATTEMPTS = 20;
export const LONG_TOKENS = 300;
export const SHORT_TOKENS = 12;
// A call of the lamp takes about fifty tokens, and sometimes twice as many.
export const CALL_TOKENS = 400;

export const ADDRESS = process.env.REPRISE_ADDRESS;
export const MODEL = "default";
// The packages are not beside the scripts, so that an installation leaves the sources as they are.
export const packages = createRequire(join(process.env.REPRISE_CLIENTS_NODE, "package.json"));

const { OpenAI } = packages("openai");
export const client = () => new OpenAI({ baseURL: `http://${ADDRESS}/v1`, apiKey: "not-needed", maxRetries: 0 });

export const LAMP = {
  name: "switch_lamp",
  description: "Switches the lamp.",
  parameters: {
    type: "object",
    properties: { on: { type: "boolean" } },
    required: ["on"],
    additionalProperties: false,
  },
};

export function check(isRight, what) {
  if (!isRight) throw new Error(typeof what === "string" ? what : JSON.stringify(what, null, 2));
}

export async function run(...scripts) {
  let at = "the start";
  setTimeout(() => {
    console.error(`${at} takes too long`);
    process.exit(1);
  }, DEADLINE_MS);
  try {
    for (const script of scripts) {
      at = script.name;
      console.log(`- ${at}`);
      await script();
    }
    console.log("all is well");
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

// A talk in a terminal: `node --import tsx client/examples/node.ts http://127.0.0.1:8080 [KEY]`. An empty line interrupts.
import { createInterface } from "node:readline/promises";
import { WebSocket } from "ws";
import { Conversation } from "../src/index.ts";

const [url = "http://127.0.0.1:8080", key] = process.argv.slice(2);
const conversation = new Conversation({ url, key, WebSocket });
const terminal = createInterface({ input: process.stdin, output: process.stdout, prompt: "you  " });

conversation.on("delta", ({ text }) => process.stdout.write(text));
conversation.on("report", ({ ms }) => {
  console.log(`\n     (first word after ${Math.round(ms.first_token ?? 0)} ms)`);
  terminal.prompt();
});
conversation.on("state", (state) => {
  if (state === "waiting") console.log("\nthe connection is lost; connecting again");
});
conversation.on("refused", ({ message }) => {
  console.error(message);
  terminal.close();
});
conversation.on("error", ({ message }) => console.error(`\n${message}`));

terminal.on("line", (line) => (line.trim() ? conversation.say(line.trim()) : conversation.interrupt()));
terminal.on("close", () => conversation.close());
conversation.connect();
terminal.prompt();

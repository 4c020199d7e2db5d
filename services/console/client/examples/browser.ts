// A page of its own for a browser: an input line, a log, and each sentence spoken as soon as it is whole. A bundler such as Vite
// makes a script of it; the page needs `server.allowed_origins` where it comes from another address than the service.
import { Conversation } from "../src/index.ts";

const conversation = new Conversation({ url: location.origin, session: sessionStorage.getItem("session") ?? undefined });
const log = document.body.appendChild(document.createElement("main"));
const line = document.body.appendChild(document.createElement("input"));
line.ariaLabel = "Message";

conversation.on("session", ({ id }) => sessionStorage.setItem("session", id));
conversation.on("change", () => {
  log.replaceChildren(
    ...conversation.items.map(({ role, text }) => {
      const said = document.createElement("p");
      said.textContent = `${role}: ${text}`;
      return said;
    }),
  );
});
conversation.on("sentence", ({ text }) => speechSynthesis.speak(new SpeechSynthesisUtterance(text)));

line.addEventListener("input", () => conversation.hear(line.value));
line.addEventListener("change", () => {
  speechSynthesis.cancel();
  conversation.say(line.value);
  line.value = "";
});
conversation.connect();

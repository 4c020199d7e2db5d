// A spoken conversation in a real browser, whose microphone is a file, with the service's own ears and voice.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Browser } from "playwright-core";
import { BROWSER, launch, open, say } from "./page.ts";
import { Service } from "./service.ts";
import { wav, Wyoming } from "./wyoming.ts";

const skip = BROWSER ? false : "there is no browser (apt-get install chromium)";
if (skip && process.env.REQUIRE_BROWSER) throw new Error(skip);

const CHAR_MS = 250;

let browser: Browser | undefined;
let wyoming: Wyoming | undefined;
after(async () => {
  await browser?.close();
  wyoming?.stop();
  await Service.stop_all();
});

test("a person speaks, is answered aloud, and speaks over the answer", { skip }, async () => {
  wyoming = await Wyoming.start(CHAR_MS);
  wyoming.hears.push(...Array<string>(50).fill("Good morning"));
  const service = await Service.start(`[speech]\nstt = "${wyoming.url}"\ntts = "${wyoming.url}"\npause_ms = 0\n`);
  // The user speaks again and again, and an answer takes longer than the silence in between.
  const file = join(service.folder, "microphone.wav");
  writeFileSync(file, wav(2.6, 0.9));
  const devices = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", `--use-file-for-fake-audio-capture=${file}`];
  browser = await launch(...devices, "--autoplay-policy=no-user-gesture-required");
  const { page, complaints } = await open(browser, service.url);
  // Nothing is spoken for a page that does not listen.
  await say(page, "Hello");
  assert.deepEqual(wyoming.said, []);
  await page.getByRole("button", { name: "Speak", exact: true }).click();
  await page.locator("mark.spoken").first().waitFor();
  await page.locator(".message.user .bubble", { hasText: "Good morning" }).nth(1).waitFor();
  await page.getByText("Interrupted here.").first().waitFor();
  await page.getByRole("button", { name: "Stop listening" }).click();
  await page.getByRole("button", { name: "Speak", exact: true }).waitFor();
  // What was not heard is not in the conversation any more.
  const heard = await page.locator(".message.assistant:has-text('Interrupted here.') .prose").first().textContent() ?? "";
  const whole = wyoming.said.map((_, at) => wyoming!.said.slice(at).join(" "));
  assert.ok(whole.some((text) => text.startsWith(heard) && text.length > heard.length), `${heard} of ${wyoming.said.join(" | ")}`);
  assert.ok(wyoming.heard.every((seconds) => seconds > 0.8 && seconds < 6), String(wyoming.heard));
  // From here on it is a conversation in writing again.
  await page.locator("button[aria-label='Stop the reply']").waitFor({ state: "detached" });
  const said = wyoming.said.length;
  await say(page, "Hello again");
  assert.equal(wyoming.said.length, said);
  assert.deepEqual(complaints, []);
});

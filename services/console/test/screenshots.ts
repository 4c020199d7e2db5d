// The pictures of README.md and docs/console.md: `npm run screenshots`. A household's day, with the model inside the binary where it is
// good enough, and with an import where people should see what a real model says.
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { Api } from "../client/src/index.ts";
import { PHONE, launch, open, say } from "./page.ts";
import { Service } from "./service.ts";

const FOLDER = fileURLToPath(new URL("../../../docs/images/", import.meta.url));
mkdirSync(FOLDER, { recursive: true });

const TALKS = [
  { words: ["Good morning!", "What is your name?", "What can you do?", "Thank you."], title: "" },
  { words: ["Hello", "How are you?"], title: "Recipes for Sunday" },
  { words: ["Good evening"], title: "Where the hammer is" },
  { words: ["Tell me a joke"], title: "Birthday of grandma" },
];

const FACTS = [
  "Anna's sister lives in Lisbon.",
  "Anna is allergic to hazelnuts.",
  "Anna gets up at half past six on school days.",
];

const LONG = "I am telling you a long story about the kitchen, the garden and the children who were playing there.";

const service = await Service.start("[model]\nctx_size = 1000\n");
const browser = await launch();
const api = new Api({ url: service.url });
try {
  for (const fact of FACTS) await api.add_fact("Anna", fact);
  for (const fact of ["The bins go out on Tuesday evening.", "The gate's code is with the neighbours."]) await api.add_fact("", fact);
  const { page } = await open(browser, service.url, { viewport: { width: 1200, height: 750 }, colorScheme: "light" });
  for (const { words, title } of TALKS.toReversed()) {
    await page.getByRole("button", { name: "New conversation" }).click();
    for (const text of words) await say(page, text);
    const id = page.url().split("/").at(-1)!;
    if (title) await api.rename(id, title);
  }
  await page.getByRole("button", { name: "Good answer" }).last().click();
  await page.mouse.move(900, 20);
  await shoot(page, "console-talk");
  await page.getByRole("button", { name: "New conversation" }).click();
  for (let turn = 0; turn < 60 && !(await page.locator(".aside", { hasText: "told by a summary" }).count()); turn++) {
    await say(page, LONG);
    const fill = await page.locator(".fill").textContent();
    if (Number(/(\d+) %/.exec(fill ?? "")?.[1]) >= 66) await page.locator(".aside", { hasText: "told by a summary" }).waitFor();
  }
  await say(page, "What did I tell you?");
  await page.locator(".aside a").last().click();
  await page.getByRole("button", { name: /^Summary/ }).first().click();
  await page.locator(".said li").first().waitFor();
  await shoot(page, "console-memory");
  await page.goto(`${service.url}/#/server`);
  await page.getByRole("heading", { name: "Wait for the first word" }).waitFor();
  await page.waitForTimeout(4000);
  await shoot(page, "console-server");
  const phone = (await open(browser, `${service.url}/#/people/Anna`, { viewport: PHONE, colorScheme: "dark", deviceScaleFactor: 2 })).page;
  await phone.getByText(FACTS[0]!).waitFor();
  await shoot(phone, "console-phone");
} finally {
  await browser.close();
  await service.stop();
}

async function shoot(page: Page, name: string): Promise<void> {
  await page.locator(".notice").waitFor({ state: "detached" });
  await page.screenshot({ path: `${FOLDER}${name}.png` });
}


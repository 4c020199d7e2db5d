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
  { words: ["Good morning!", "My cat is called Mimi.", "My brother is called Tom.", "What is my cat called?"], title: "" },
  { words: ["Hello", "How are you?"], title: "Recipes for Sunday" },
  { words: ["Good evening"], title: "Where the hammer is" },
  { words: ["Tell me a joke"], title: "Birthday of grandma" },
];

const FACTS = [
  "Anna's sister lives in Lisbon.",
  "Anna is allergic to hazelnuts.",
  "Anna gets up at half past six on school days.",
];

const LONG = [
  "My brother is called Tom.",
  "My sister lives in Lisbon.",
  "My favourite food is soup.",
  "My dog is called Rex.",
  "My birthday is in May.",
  "I like to read in the garden when the children are at school and the house is quiet.",
];

const service = await Service.start("[model]\nctx_size = 1000\n");
const browser = await launch();
const api = new Api({ url: service.url });
try {
  for (const fact of FACTS) await api.add_fact("Anna", fact);
  for (const fact of ["The bins go out on Tuesday evening.", "The gate's code is with the neighbours."]) await api.add_fact("", fact);
  const { page } = await open(browser, service.url, { viewport: { width: 1100, height: 680 }, colorScheme: "light" });
  for (const { words, title } of TALKS.toReversed()) {
    await begin(page);
    for (const text of words) await say(page, text);
    const id = page.url().split("/").at(-1)!;
    if (title) await api.rename(id, title);
  }
  await page.getByRole("button", { name: "Good answer" }).last().click();
  await page.mouse.move(900, 20);
  await shoot(page, "console-talk");
  await begin(page);
  for (let turn = 0; turn < 60 && !(await page.locator(".aside", { hasText: "told by a summary" }).count()); turn++) {
    await say(page, LONG[turn % LONG.length]!);
    const fill = await page.locator(".fill").textContent();
    if (Number(/(\d+) %/.exec(fill ?? "")?.[1]) >= 66) await page.locator(".aside", { hasText: "told by a summary" }).waitFor();
  }
  await say(page, "What is my dog called?");
  await page.locator(".aside a").last().click();
  await page.getByRole("button", { name: /^Summary/ }).first().click();
  await page.locator(".said li").first().waitFor();
  await page.evaluate(() => document.querySelector("main")?.scrollTo(0, 120));
  await shoot(page, "console-memory", { x: 281, y: 0, width: 819, height: 640 });
  await page.goto(`${service.url}/#/server`);
  await page.getByRole("heading", { name: "Wait for the first word" }).waitFor();
  await page.waitForTimeout(4000);
  await shoot(page, "console-server");
  const phone = (await open(browser, `${service.url}/#/people/Anna`, { viewport: PHONE, colorScheme: "dark", deviceScaleFactor: 1.5 })).page;
  await phone.getByText(FACTS[0]!).waitFor();
  await shoot(phone, "console-phone");
} finally {
  await browser.close();
  await service.stop();
}

async function begin(page: Page): Promise<void> {
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByRole("heading", { name: "What is on your mind?" }).waitFor();
}

interface Clip {
  x: number;
  y: number;
  width: number;
  height: number;
}

async function shoot(page: Page, name: string, clip?: Clip): Promise<void> {
  await page.locator(".notice").waitFor({ state: "detached" });
  await page.screenshot({ path: `${FOLDER}${name}.png`, clip });
}


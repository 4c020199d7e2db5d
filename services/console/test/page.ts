// The page in a real browser: Debian's Chromium, with what it must never do watched all the time.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import AxeBuilder from "./axe.ts";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const BROWSER = PLACES.find((place) => place && existsSync(place));

/** With `FRESH=1` the page comes from `built/` and not from the binary, so that a change to it needs no cargo. */
const IS_FRESH = process.env.FRESH === "1";
// A page that the test hands over has no address space, and the browser then keeps it from this machine.
const FOR_FRESH = IS_FRESH ? ["--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets"] : [];

export const launch = (...more: string[]): Promise<Browser> =>
  chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-dev-shm-usage", ...FOR_FRESH, ...more] });

export const PHONE = { width: 320, height: 640 };
export const DESKTOP = { width: 1440, height: 900 };
const PATIENCE_MS = 60_000;

export interface Watched {
  page: Page;
  /** Errors of scripts and of the content policy, and requests to other servers. */
  complaints: string[];
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}, script?: string): Promise<Watched> {
  const context = await browser.newContext({ viewport: DESKTOP, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    // The browser itself reports refused and lost connections.
    if (message.type() === "error" && !/WebSocket|Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== new URL(url).origin && !["blob:", "data:"].includes(protocol)) complaints.push(`asked ${request.url()}`);
  });
  if (IS_FRESH) await take_fresh(page, url);
  if (script) await page.addInitScript(script);
  await page.goto(url);
  return { page, complaints };
}

async function take_fresh(page: Page, url: string): Promise<void> {
  const { origin } = new URL(url);
  await page.route(
    ({ origin: asked, pathname }) => asked === origin && (pathname === "/" || pathname.startsWith("/console/")),
    async (route) => {
      const name = new URL(route.request().url()).pathname.replace(/^\/(console\/)?/, "") || "index.html";
      // A test may have ended the service meanwhile.
      const response = await route.fetch().catch(() => undefined);
      if (!response) return route.abort().catch(() => {});
      await route.fulfill({ response, body: readFileSync(new URL(`../built/${name}`, import.meta.url)) });
    },
  );
}

export async function say(page: Page, text: string): Promise<void> {
  const replies = await page.locator(".message.assistant .actions").count();
  await page.getByLabel("What you say").fill(text);
  await page.keyboard.press("Enter");
  await page.locator(".message.assistant .actions").nth(replies).waitFor({ state: "attached" });
}

/** Nothing that a person with a screen reader, a keyboard or weak eyes trips over; and nothing runs out of the screen. */
export async function check(page: Page, what: string): Promise<void> {
  const { violations } = await AxeBuilder(page);
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
  assert.deepEqual(told, [], what);
  const wider = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const all = [...document.querySelectorAll<HTMLElement>("main *, .side *, .tabs *")].filter((element) => {
      const box = element.getBoundingClientRect();
      const style = getComputedStyle(element);
      const is_seen = box.width > 0 && style.visibility !== "hidden" && !element.closest(".sr-only, svg, .side:not(.is-open)");
      return is_seen && box.right > width + 1;
    });
    return document.documentElement.scrollWidth > width ? ["the page"] : all.map((element) => element.outerHTML.slice(0, 120));
  });
  assert.deepEqual(wider, [], `${what}: runs out of the screen`);
}

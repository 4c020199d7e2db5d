// axe-core, run from outside the page: the page's own policy lets no foreign script in.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import type { Page } from "playwright-core";

const SOURCE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export default async function axe(page: Page): Promise<AxeResults> {
  // Evaluated over the debugging port, which no policy of the page concerns.
  await page.evaluate(SOURCE);
  return page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<AxeResults> } }).axe.run());
}

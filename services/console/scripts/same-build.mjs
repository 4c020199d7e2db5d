// Builds the page beside the committed one and compares: the binary must hold what the source says.
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const fresh = mkdtempSync(join(tmpdir(), "console-"));
try {
  await build({ root, logLevel: "warn", build: { outDir: fresh, emptyOutDir: true } });
  const files = (folder) => Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), "utf8")]));
  const [committed, built] = [files(join(root, "built")), files(fresh)];
  const names = new Set([...Object.keys(committed), ...Object.keys(built)]);
  const differs = [...names].filter((name) => committed[name] !== built[name]);
  if (differs.length > 0) {
    console.error(`built/ is not what the source builds (${differs.join(", ")}): run \`npm run build\``);
    process.exitCode = 1;
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}

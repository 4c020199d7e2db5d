// The real binary in a folder of its own, as its user starts it. `REPRISE` names it, and the workspace's own build stands in.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const target = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL("../../../target", import.meta.url));
const BINARY = process.env.REPRISE ?? join(target, "debug", "reprise");
const PATIENCE_MS = 120_000;

export class Service {
  private static readonly all = new Set<Service>();

  /** Stops what a test that failed has left. Its process would keep the run from ending. */
  static async stop_all(): Promise<void> {
    for (const service of Service.all) await service.stop();
  }

  url = "";
  private child?: ChildProcess;
  readonly folder = mkdtempSync(join(tmpdir(), "reprise-"));

  /** A folder with a configuration, before the first start. */
  static prepared(settings = ""): Service {
    const service = new Service();
    Service.all.add(service);
    writeFileSync(join(service.folder, "reprise.toml"), settings);
    return service;
  }

  static async start(settings = ""): Promise<Service> {
    const service = Service.prepared(settings);
    await service.start();
    return service;
  }

  /** Runs a command beside the service. */
  run(...args: string[]): string {
    const done = spawnSync(BINARY, args, { cwd: this.folder, env: { HOME: this.folder }, encoding: "utf8" });
    if (done.status !== 0) throw new Error(`${args.join(" ")}: ${done.stderr}`);
    return done.stdout;
  }

  async start(port = "0", ...more: string[]): Promise<void> {
    const args = ["serve", "--port", port, "--preset", "builtin", "--set", "wyoming.port=0", ...more];
    this.child = spawn(BINARY, args, { cwd: this.folder, env: { HOME: this.folder }, stdio: ["ignore", "pipe", "pipe"] });
    const log: string[] = [];
    createInterface({ input: this.child.stderr! }).on("line", (line) => log.push(line));
    this.url = await new Promise<string>((found, failed) => {
      const late = setTimeout(() => failed(new Error(`the service does not start\n${log.join("\n")}`)), PATIENCE_MS);
      createInterface({ input: this.child!.stdout! }).on("line", (line) => {
        const address = /^ {2}address +(http:\S+)/.exec(line)?.[1];
        if (!address) return;
        clearTimeout(late);
        found(address);
      });
      this.child!.once("exit", (code) => failed(new Error(`the service ended with ${code}\n${log.join("\n")}`)));
    });
  }

  /** Ends the process at once, as a lost network looks to a client. */
  async kill(): Promise<void> {
    await this.end("SIGKILL");
  }

  async again(): Promise<void> {
    await this.start(new URL(this.url).port);
  }

  async stop(): Promise<void> {
    Service.all.delete(this);
    await this.end("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill(signal);
    await ended;
  }
}

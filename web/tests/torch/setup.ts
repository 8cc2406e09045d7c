// Makes what the tests of web/torch read: the tables of the build, and the records of PyTorch.
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeTables } from "../../tools/tables.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const files = join(here, "..", "files", "torch");
const root = join(here, "..", "..", "..");

const RECORDS = {
  "record.py": "ops.json",
  "record_programs.py": "programs.json",
  "record_training.py": "training.json",
};

const changed = (path: string): number => (existsSync(path) ? statSync(path).mtimeMs : 0);

/** Runs each script whose record is missing or older than it. */
export function record(): void {
  for (const [script, made] of Object.entries(RECORDS)) {
    const source = join(here, script);
    if (changed(join(files, made)) < changed(source)) {
      execFileSync(join(root, ".venv", "bin", "python"), [source], {
        stdio: ["ignore", "inherit", "inherit"],
        env: { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0" },
      });
    }
  }
}

export default async function setup(): Promise<void> {
  await writeTables();
  record();
  const page = join(here, "..", "..", "dist", "site", "operators");
  if (existsSync(page)) {
    copyFileSync(join(files, "ops.json"), join(page, "ops.json"));
  }
}

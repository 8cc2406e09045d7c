// Makes what the tests read: the tables of the build, and the records of PyTorch.
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeTables } from "../../tools/tables.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const tests = join(here, "..");
const files = join(tests, "files");
const root = join(tests, "..", "..");

const RECORDS = {
  "torch/record.py": "torch/ops.json",
  "torch/record_programs.py": "torch/programs.json",
  "torch/record_training.py": "torch/training.json",
  "site/record.py": "site/tokens.json",
};

const changed = (path: string): number => (existsSync(path) ? statSync(path).mtimeMs : 0);

/** Runs each script whose record is missing or older than it. */
export function record(): void {
  for (const [script, made] of Object.entries(RECORDS)) {
    const source = join(tests, script);
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
    copyFileSync(join(files, "torch", "ops.json"), join(page, "ops.json"));
  }
}

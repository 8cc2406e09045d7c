// Makes what the tests read: the tables of the build, and the records of PyTorch.
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeTables } from "../../tools/tables.mjs";
import { site } from "../site/folder";

const here = dirname(fileURLToPath(import.meta.url));
const tests = join(here, "..");
const files = join(tests, "files");
const root = join(tests, "..", "..");

const { TORCH_PROGRAMS = "200", TORCH_PROGRAMS_SEED = "0" } = process.env;

/** The random programs that the environment asks for; record_programs.py names the file. */
export const programsFile =
  TORCH_PROGRAMS === "200" && TORCH_PROGRAMS_SEED === "0"
    ? "programs.json"
    : `programs-${TORCH_PROGRAMS_SEED}-${TORCH_PROGRAMS}.json`;

const { TORCH_EDGES, TORCH_EDGES_SEED = "0" } = process.env;

/** The unusual calls that the environment asks for; record_edges.py names the file. */
export const edgesFile =
  TORCH_EDGES === undefined ? undefined : `edges-${TORCH_EDGES_SEED}-${TORCH_EDGES}.json`;

const RECORDS = {
  "torch/record.py": "torch/ops.json",
  ...(edgesFile !== undefined && { "torch/record_edges.py": `torch/${edgesFile}` }),
  "torch/record_layers.py": "torch/layers.pt",
  "torch/record_programs.py": `torch/${programsFile}`,
  "torch/record_rows.py": "torch/rows.json",
  "torch/record_training.py": "torch/training.json",
  "site/record.py": "site/tokens.json",
};

const changed = (path: string): number => (existsSync(path) ? statSync(path).mtimeMs : 0);

// The modules that a script imports, beside itself.
const MODULES: Record<string, string[]> = {
  "torch/record_edges.py": ["torch/record.py"],
  "torch/record_programs.py": ["torch/programs/model.py", "torch/programs/steps.py"],
};

function run(script: string): Promise<void> {
  const child = spawn(join(root, ".venv", "bin", "python"), [join(tests, script)], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0" },
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => {
      if (status === 0) {
        resolve();
      } else {
        reject(new Error(`${script} ended with ${status}`));
      }
    });
  });
}

/** Runs each script whose record is missing or older than it, two at a time: one takes half of the time of all. */
export async function record(): Promise<void> {
  const wanted = Object.entries(RECORDS).filter(([script, made]) => {
    const sources = [script, ...(MODULES[script] ?? [])].map((name) => changed(join(tests, name)));
    return changed(join(files, made)) < Math.max(...sources);
  });
  const work = async (): Promise<void> => {
    for (let next = wanted.shift(); next !== undefined; next = wanted.shift()) {
      await run(next[0]);
    }
  };
  await Promise.all([work(), work()]);
}

export default async function setup(): Promise<void> {
  await writeTables();
  await record();
  const page = join(site, "operators");
  if (existsSync(page)) {
    copyFileSync(join(files, "torch", "ops.json"), join(page, "ops.json"));
  }
}

// The shaders of the site's files, and of those that tests play, by the two compilers of browsers: Tint and naga.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { site } from "./site/folder";

const root = join(import.meta.dirname, "..", "..");
const python = join(root, ".venv", "bin", "python");

function filesIn(folder: string, name: RegExp): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && name.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

test.runIf(existsSync(python))(
  "shaders of graph files compile",
  () => {
    const files = [
      ...filesIn(site, /\.twg$/),
      ...filesIn(join(import.meta.dirname, "files"), /^[a-z_]+$/),
    ];
    const program = join(root, "tests", "export", "shader_files.py");
    const env = { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0", PYTHONPATH: root };
    const [count, ...wrong] = execFileSync(python, [program, ...files], { env, encoding: "utf-8" })
      .trim()
      .split("\n");
    expect(Number.parseInt(count!)).toBeGreaterThan(50);
    expect(wrong.join("\n")).toBe("");
  },
  120_000,
);

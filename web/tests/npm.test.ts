// The npm package as others install it: what its tarball has, and what TypeScript finds of its types.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { long } from "./long";

const web = join(import.meta.dirname, "..");
const npm = join(web, "dist", "npm");
const folder = mkdtempSync(join(tmpdir(), "npm-"));

// Each line behind a @ts-expect-error must be an error: types that are not found are `any`, which takes all.
const program = (graph: string): string => `
import { load, type LoadOptions } from "torch-webgpu";
import { nn, optim, torch, type Tensor } from "torch-webgpu/torch";
import type { Functions } from "${graph}";

const options: LoadOptions = { checkpointEvery: 10 };
const p = await load<Functions>("step.twg", options);
const { y } = await p.step({ x: [1, 2] });
const values: Float32Array = y;
// @ts-expect-error
await p.step({ x: "wrong" });
// @ts-expect-error
const words: string = y;
const device: GPUDevice = p.device;
// @ts-expect-error
device.nothing;
await torch.init(device);
class Model extends nn.Module {
  fc: nn.Linear = new nn.Linear(2, 1, { bias: false });
  override forward(x: Tensor): Tensor {
    return this.fc.forward(x).relu();
  }
}
const optimizer = new optim.SGD(new Model().parameters(), { lr: 0.1 });
optimizer.step();
// @ts-expect-error
new nn.Linear(2, 1, false);
// @ts-expect-error
new optim.SGD(new Model().parameters(), { learning_rate: 0.1 });
// @ts-expect-error
torch.ones([2]).add("1");
export { values, words };
`;

const types = `
import type { InputOf, OutputOf, RunOptions } from "torch-webgpu";
export type Functions = {
  step(inputs: { x: InputOf<"F32"> }, options?: RunOptions): Promise<{ y: OutputOf<"F32"> }>;
};
`;

const run = (command: string, args: string[], cwd: string): string =>
  execFileSync(command, args, { cwd, encoding: "utf-8", stdio: ["ignore", "pipe", "pipe"] });

describe.skipIf(!existsSync(join(npm, "package.json")))("the npm package", () => {
  let files: string[];
  const app = join(folder, "app");

  beforeAll(() => {
    const [packed] = JSON.parse(
      run("npm", ["pack", "--json", "--offline", "--pack-destination", folder], npm),
    ) as { filename: string; files: { path: string }[] }[];
    files = packed!.files.map(({ path }) => path);
    // As npm would lay it out, without asking a registry for the types.
    const place = join(app, "node_modules", "torch-webgpu");
    mkdirSync(place, { recursive: true });
    run("tar", ["-xzf", join(folder, packed!.filename), "--strip-components=1", "-C", place], app);
    mkdirSync(join(app, "node_modules", "@webgpu"));
    const webgpu = join("node_modules", "@webgpu", "types");
    symlinkSync(join(web, webgpu), join(app, webgpu));
    writeFileSync(join(app, "package.json"), '{ "type": "module" }');
    writeFileSync(join(app, "step.twg.d.ts"), types);
  });

  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  test("what it has", () => {
    expect(files).toEqual(
      expect.arrayContaining(["LICENSE", "README.md", "package.json", "player.js", "torch.js"]),
    );
    expect(files.filter((path) => !/^(player|torch)\/.*\.d\.ts$/.test(path)).length).toBe(5);
    const facts = JSON.parse(
      run("node", ["-p", 'JSON.stringify(require("./package.json"))'], npm),
    ) as Record<string, Record<string, string>>;
    expect(Object.keys(facts.dependencies!)).toEqual(["@webgpu/types"]);
    expect(facts.devDependencies).toBeUndefined();
  });

  test("Node imports both modules", () => {
    writeFileSync(
      join(app, "run.mjs"),
      'import { load } from "torch-webgpu"; import { torch } from "torch-webgpu/torch";' +
        'import { nn } from "torch-webgpu/torch";' +
        "console.log(typeof load, typeof torch.add, nn.Linear.name);",
    );
    expect(run("node", ["run.mjs"], app)).toBe("function function Linear\n");
  });

  const resolutions: [string, string, string][] = [["nodenext", "nodenext", "./step.twg.js"]];
  if (long) {
    resolutions.push(["esnext", "bundler", "./step.twg"], ["node16", "node16", "./step.twg.js"]);
  }
  test.each(resolutions)(
    "types under module %s, moduleResolution %s",
    (module, moduleResolution, graph) => {
      writeFileSync(join(app, "main.ts"), program(graph));
      writeFileSync(
        join(app, "tsconfig.json"),
        JSON.stringify({
          compilerOptions: {
            ...{ module, moduleResolution, target: "es2022", lib: ["es2023", "dom"], types: [] },
            // Not skipLibCheck: the package's own files have to be right as well.
            ...{ strict: true, noEmit: true },
          },
          files: ["main.ts"],
        }),
      );
      const compiler = join(web, "node_modules", "typescript", "bin", "tsc");
      let said = "";
      try {
        run(process.execPath, [compiler], app);
      } catch (error) {
        said = (error as { stdout: string }).stdout;
      }
      expect(said).toBe("");
    },
  );
});

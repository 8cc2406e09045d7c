// Builds web/dist/bench: a page for each player, what the peers fetch at run time, the same modules for Node, and
// the runner.
import { copyFile, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const bench = dirname(fileURLToPath(import.meta.url));
const dist = join(bench, "..", "dist", "bench");
const modules = join(bench, "node_modules");

const options = {
  bundle: true,
  format: "esm",
  target: "es2022",
  logLevel: "warning",
  minify: true,
  nodePaths: [modules, join(bench, "..", "node_modules")],
};

// The files that make_files.py wrote stay.
for (const part of ["pages", "onnxruntime", "transformers", "node"]) {
  await rm(join(dist, part), { recursive: true, force: true });
}
const players = (await readdir(join(bench, "pages"), { withFileTypes: true }))
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);
for (const player of players) {
  // One file: what a visitor fetches is the code that the page needs, without chunks of other pages.
  await build({
    ...options,
    entryPoints: [join(bench, "pages", player, "main.ts")],
    outfile: join(dist, "pages", player, "main.js"),
    platform: "browser",
  });
  await writeFile(
    join(dist, "pages", player, "index.html"),
    `<!doctype html><title>${player}</title><script type="module" src="main.js"></script>\n`,
  );
}
const inNode = {
  ...options,
  outdir: dist,
  outExtension: { ".js": ".mjs" },
  platform: "node",
  minify: false,
};
await build({
  ...inNode,
  entryPoints: { run: join(bench, "run.ts"), "node/node": join(bench, "node.ts") },
  // What has native parts or finds files by its own place.
  packages: "external",
});
// The players that run there (README.md). Node finds no modules by names as TensorFlow.js' are written.
const playersInNode = ["torch-webgpu", "tensorflow"];
await build({
  ...inNode,
  entryPoints: Object.fromEntries(
    playersInNode.map((name) => [`node/${name}`, join(bench, "pages", name, "main.ts")]),
  ),
  banner: {
    js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);',
  },
});
await writeFile(join(dist, "pages", "index.html"), "<!doctype html><title>empty</title>\n");

const runtimes = {
  onnxruntime: join(modules, "onnxruntime-web", "dist"),
  transformers: join(
    modules,
    ...["@huggingface", "transformers", "node_modules", "onnxruntime-web", "dist"],
  ),
};
for (const [player, folder] of Object.entries(runtimes)) {
  await mkdir(join(dist, player), { recursive: true });
  for (const kind of ["mjs", "wasm"]) {
    const name = `ort-wasm-simd-threaded.asyncify.${kind}`;
    await copyFile(join(folder, name), join(dist, player, name));
  }
}

// Builds web/dist: the npm package with its types, and the site. `build.mjs tests` builds the site of the tests beside
// it, with networks that are hardly trained: that which `make web` serves stays as it is.
import { execFileSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { writeTables } from "./tables.mjs";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(web, "dist");
const npm = join(dist, "npm");
const target = process.argv[2] === "tests" ? join(dist, "tests", "site") : join(dist, "site");

const options = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };

// The rooms that the npm package has: player/index.ts becomes dist/npm/player.js.
const rooms = ["player", "torch"].filter((room) => existsSync(join(web, room, "index.ts")));

await writeTables();
for (const folder of [npm, target]) {
  await rm(folder, { recursive: true, force: true });
}
await mkdir(npm, { recursive: true });
// One build for each room, so that a module of the package is one file.
for (const room of rooms) {
  await build({
    ...options,
    entryPoints: { [room]: join(web, room, "index.ts") },
    outdir: npm,
    minify: true,
    // Errors name classes, such as that of the module whose state dict does not fit.
    keepNames: room === "torch",
  });
}
execFileSync(
  process.execPath,
  [
    join(web, "node_modules/typescript/bin/tsc"),
    ...["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", npm],
    ...["--rootDir", web, "--target", "es2022", "--module", "esnext"],
    ...["--moduleResolution", "bundler", "--lib", "es2023,dom", "--types", "@webgpu/types"],
    ...["--strict", "--verbatimModuleSyntax", "--skipLibCheck"],
    ...rooms.map((room) => join(web, room, "index.ts")),
    join(web, "torch/wgsl/generated.d.ts"),
  ],
  { stdio: "inherit" },
);

// Node's way to resolve modules wants the names of files. Of the types, a name.js stands for the name.d.ts.
for (const name of await readdir(npm, { recursive: true })) {
  if (!name.endsWith(".d.ts")) {
    continue;
  }
  const file = join(npm, name);
  const text = await readFile(file, "utf8");
  const whole = text.replace(/(from |import\()"(\.[^"]*)"/g, (_, before, path) => {
    const found = [path, `${path}/index`].find((one) =>
      existsSync(`${join(dirname(file), one)}.d.ts`),
    );
    if (found === undefined) {
      throw new Error(`${name} imports ${path}, which has no types`);
    }
    return `${before}"${found}.js"`;
  });
  const head = rooms.some((room) => name === join(room, "index.d.ts"))
    ? '/// <reference types="@webgpu/types" />\n'
    : "";
  await writeFile(file, head + whole);
}

// What else the package has. What it needs is not what its development needs: only the types of the standard.
const own = JSON.parse(await readFile(join(web, "package.json"), "utf8"));
const names = ["name", "version", "description", "license", "type", "engines", "sideEffects"];
const types = "@webgpu/types";
const published = {
  ...Object.fromEntries(names.map((name) => [name, own[name]])),
  exports: JSON.parse(JSON.stringify(own.exports).replaceAll("./dist/npm/", "./")),
  dependencies: { [types]: `^${own.devDependencies[types]}` },
};
await writeFile(join(npm, "package.json"), JSON.stringify(published, undefined, 2) + "\n");
await cp(join(web, "npm", "README.md"), join(npm, "README.md"));
await cp(join(web, "..", "LICENSE"), join(npm, "LICENSE"));

// The site: static files as they are, and each page's main.ts and worker.ts as modules beside it.
const site = join(web, "site");
const files = await readdir(site, { recursive: true });
await cp(site, target, {
  recursive: true,
  filter: (source) => !/\.(ts|md|py)$/.test(source),
});
const pages = files.filter((file) => /(^|[\\/])(main|worker)\.ts$/.test(file));
if (pages.length > 0) {
  await build({
    ...options,
    entryPoints: pages.map((page) => join(site, page)),
    outbase: site,
    outdir: target,
    minify: true,
    splitting: true,
    chunkNames: "shared-[hash]",
  });
}

// Builds web/dist: the npm package's module with its types, and the site.
import { execFileSync } from "node:child_process";
import { cp, mkdir, readdir, rm } from "node:fs/promises";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { writeTables } from "./tables.mjs";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(web, "dist");

const options = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };

// The rooms that the npm package has: player/index.ts becomes dist/player.js.
const rooms = ["player", "torch"].filter((room) => existsSync(join(web, room, "index.ts")));

await writeTables();
await rm(dist, { recursive: true, force: true });
await mkdir(dist);
// One build for each room, so that a module of the package is one file.
for (const room of rooms) {
  await build({
    ...options,
    entryPoints: { [room]: join(web, room, "index.ts") },
    outdir: dist,
    minify: true,
  });
}
execFileSync(
  process.execPath,
  [
    join(web, "node_modules/typescript/bin/tsc"),
    ...["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", dist],
    ...["--rootDir", web, "--target", "es2022", "--module", "esnext"],
    ...["--moduleResolution", "bundler", "--lib", "es2023,dom", "--types", "@webgpu/types"],
    ...["--strict", "--verbatimModuleSyntax", "--skipLibCheck"],
    ...rooms.map((room) => join(web, room, "index.ts")),
    join(web, "torch/wgsl/generated.d.ts"),
  ],
  { stdio: "inherit" },
);

// The site: static files as they are, and each page's main.ts and worker.ts as modules beside it.
const site = join(web, "site");
const files = await readdir(site, { recursive: true });
await cp(site, join(dist, "site"), {
  recursive: true,
  filter: (source) => !/\.(ts|md|py)$/.test(source),
});
const pages = files.filter((file) => /(^|[\\/])(main|worker)\.ts$/.test(file));
if (pages.length > 0) {
  await build({
    ...options,
    entryPoints: pages.map((page) => join(site, page)),
    outbase: site,
    outdir: join(dist, "site"),
    minify: true,
    splitting: true,
    chunkNames: "shared-[hash]",
  });
}

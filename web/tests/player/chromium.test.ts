/** The player in Chromium. */

import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { serve } from "../../tools/serve.mjs";
import { findChromium, launch } from "../chromium";
import { long } from "../long";
import { cases } from "./cases";

const web = join(import.meta.dirname, "..", "..");
const path = findChromium();

// Chromium's software adapter takes long to compile these. In Node they always run.
const LONG = [
  "equals PyTorch at sizes of a call: sized_attention",
  "equals PyTorch at sizes of a call: sized_images",
  "equals PyTorch at sizes of a call: sized_training",
  "equals PyTorch: training, on a software adapter as on any other",
  "sizes out of their range",
  "a device that is lost in the middle of training",
  "1,000 steps without growth",
];

describe.skipIf(path === null)("in Chromium", () => {
  let folder: string;
  let server: Awaited<ReturnType<typeof serve>>;
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "chromium-"));
    await build({
      entryPoints: [join(import.meta.dirname, "browser.ts")],
      outfile: join(folder, "cases.js"),
      bundle: true,
      format: "esm",
    });
    await writeFile(join(folder, "index.html"), '<script type="module" src="cases.js"></script>');
    await symlink(join(web, "tests", "files"), join(folder, "files"));
    server = await serve(folder);
    browser = await launch(path!);
    page = await browser.newPage();
    await page.goto(`http://localhost:${(server.address() as AddressInfo).port}/`);
    await page.waitForFunction("globalThis.run !== undefined");
  });

  afterAll(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
    await rm(folder, { recursive: true });
  });

  test("there are the cases that take long", () => {
    expect(Object.keys(cases)).toEqual(expect.arrayContaining(LONG));
  });

  const names = Object.keys(cases).filter((name) => long || !LONG.includes(name));
  test.each(names)("%s", async (name) => {
    const failure = await page.evaluate(`run(${JSON.stringify(name)})`);
    expect(failure).toBe(null);
  });
});

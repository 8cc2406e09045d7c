/** The pages in Chromium, as a visitor uses them. */

import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { headerLength, parseHeader } from "../player/safetensors";
import { serve } from "../tools/serve.mjs";
import { findChromium, launch } from "./chromium";

const path = findChromium();
const site = join(import.meta.dirname, "..", "dist", "site");

describe.skipIf(path === null)("the site", () => {
  let server: Awaited<ReturnType<typeof serve>>;
  let browser: Browser;
  let address: string;
  const errors: string[] = [];

  beforeAll(async () => {
    server = await serve(site);
    address = `http://localhost:${(server.address() as AddressInfo).port}/`;
    browser = await launch(path!);
  });

  afterAll(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
  });

  async function open(where: string, prepare?: (page: Page) => Promise<void>): Promise<Page> {
    const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    page.setDefaultTimeout(120_000);
    page.on("pageerror", ({ message }) => errors.push(message));
    page.on("console", (message) => {
      if (message.type() === "error") {
        errors.push(message.text());
      }
    });
    await prepare?.(page);
    await page.goto(address + where);
    return page;
  }

  test("digits: trains, recognizes, saves and loads", async () => {
    const page = await open("digits/");
    await page.waitForSelector("#train:enabled");
    // A phone's width holds the page.
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    await page.click("#train");
    await page.waitForFunction("parseInt(document.getElementById('step').textContent) >= 2");
    const first = Number(await page.textContent("#loss"));
    expect(first).toBeGreaterThan(0.5);
    expect(first).toBeLessThan(3);
    await page.click("#train");
    await page.waitForSelector("#train:has-text('Go on')");

    await page.locator("#pad").scrollIntoViewIfNeeded();
    const pad = (await page.locator("#pad").boundingBox())!;
    const move = (x: number, y: number) =>
      page.mouse.move(pad.x + x * pad.width, pad.y + y * pad.height, { steps: 4 });
    await move(0.5, 0.2);
    await page.mouse.down();
    await move(0.5, 0.8);
    await page.mouse.up();
    await page.waitForSelector("#answer:has-text('It is a')");
    const parts = await page.$$eval("#bars small", (all) => all.map((one) => one.textContent));
    const sum = parts.reduce((total, part) => total + parseInt(part!), 0);
    expect(parts.length).toBe(10);
    expect(Math.abs(sum - 100)).toBeLessThanOrEqual(5);

    const [saved] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
    expect(saved.suggestedFilename()).toBe("digits.safetensors");
    const file = await saved.path();
    const bytes = new Uint8Array(await readFile(file));
    const { entries } = parseHeader(bytes.subarray(8, 8 + headerLength(bytes)));
    expect([...entries.keys()].sort()).toEqual(
      ["conv1", "conv2", "classify"].flatMap((n) => [`${n}.bias`, `${n}.weight`]).sort(),
    );
    await page.setInputFiles("#load", file);
    await page.waitForFunction("/%/.test(document.getElementById('accuracy').textContent)");
    expect(await page.isVisible("#notice")).toBe(false);
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000); // compiling for a software GPU takes most of it

  test.each(["", "digits/"])("without WebGPU: %s", async (where) => {
    const page = await open(where, async (fresh) => {
      await fresh.addInitScript("Object.defineProperty(navigator, 'gpu', { value: undefined })");
    });
    await page.waitForSelector("#notice:visible");
    expect(await page.textContent("#notice")).toMatch(/no WebGPU\. Open this page in/);
    await page.close();
    expect(errors).toEqual([]);
  });

  test("the types of digits.twg are those that export wrote", async () => {
    const here = join(import.meta.dirname, "..", "site", "digits", "digits.twg.d.ts");
    const plain = (text: Buffer) => text.toString().replace(/from ".*"/, "");
    const written = await readFile(join(site, "digits", "digits.twg.d.ts"));
    expect(plain(await readFile(here))).toBe(plain(written));
  });

  test("links of the first page", async () => {
    const page = await open("");
    for (const link of await page.$$eval("a", (all) => all.map((one) => one.href))) {
      expect((await fetch(link)).status).toBe(200);
    }
    await page.close();
  });
});

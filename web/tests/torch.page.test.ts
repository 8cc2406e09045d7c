// The page of all operators in Chromium, on a part of them. Needs web/dist/tests (npm run build tests).
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { expect, test } from "vitest";
import { serve } from "../tools/serve.mjs";
import { long } from "./long";
import { site } from "./site/folder";

function findChromium(): string | undefined {
  try {
    return execFileSync("sh", ["-c", "command -v chromium chromium-browser google-chrome"])
      .toString()
      .split("\n")[0];
  } catch {
    return undefined;
  }
}

const path = findChromium();
const PART = ["add", "matmul", "scatter_add", "nn.functional.max_pool2d"];
if (long) {
  PART.push("softmax", "nn.functional.layer_norm", "nn.functional.conv2d", "sort");
}

test.runIf(path !== undefined && existsSync(join(site, "operators", "main.js")))(
  "operators in Chromium",
  async () => {
    const server = await serve(site);
    const browser = await chromium.launch({
      executablePath: path!,
      // Playwright's own --headless is another program.
      headless: false,
      args: [
        ...["--headless=new", "--no-sandbox"],
        ...["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"],
      ],
    });
    try {
      const page = await browser.newPage();
      const { port } = server.address() as AddressInfo;
      await page.goto(`http://localhost:${port}/operators/?only=${PART.join()}`);
      await page.waitForSelector("#total[data-done=true]", { timeout: 100_000 });
      const cells = await page.locator("#rows tr").allInnerTexts();
      expect(cells.length).toBe(PART.length);
      expect(cells.filter((text) => /different|waiting|not here/.test(text))).toEqual([]);
      await page.setViewportSize({ width: 390, height: 844 });
      expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
      await page.fill("#search", "scatter");
      expect(await page.locator("#rows tr:visible").count()).toBe(1);
    } finally {
      await browser.close();
      server.close();
    }
  },
  120_000,
);

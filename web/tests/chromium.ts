/** Chromium without a window, with WebGPU on SwiftShader. */

import { execFileSync } from "node:child_process";
import { chromium, type Browser } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** The path of a Chromium, or null where there is none. */
export function findChromium(): string | null {
  for (const name of NAMES) {
    try {
      return execFileSync("which", [name], { stdio: ["ignore", "pipe", "ignore"] })
        .toString()
        .trim();
    } catch {
      // the next name
    }
  }
  return null;
}

export function launch(path: string): Promise<Browser> {
  return chromium.launch({
    executablePath: path,
    // Playwright's own --headless is another program.
    headless: false,
    args: [
      "--headless=new",
      "--no-sandbox",
      "--enable-unsafe-webgpu",
      "--use-webgpu-adapter=swiftshader",
    ],
  });
}

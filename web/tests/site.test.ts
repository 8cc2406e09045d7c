/** The pages in Chromium, as a visitor uses them. */

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { headerLength, parseHeader } from "../player/safetensors";
import { serve } from "../tools/serve.mjs";
import { long } from "./long";
import { site } from "./site/folder";
import { findChromium, launch } from "./chromium";

const path = findChromium();

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

  test("digits: after a lost device training goes on from where it was kept", async ({ skip }) => {
    skip(!long, "more than an epoch of steps; player/cases.ts has other lost devices");
    const page = await open("digits/");
    await page.waitForSelector("#train:enabled");
    await page.evaluate(`{
      const { checkpoint } = player;
      player.checkpoint = async () => {
        await checkpoint.call(player);
        globalThis.kept = await player.state();
      };
    }`);
    const numberOf = async (id: string): Promise<number> =>
      parseFloat((await page.textContent(`#${id}`))!);
    await page.click("#train");
    // An epoch has 21 steps; some more are lost with the device.
    await page.waitForFunction("parseInt(document.getElementById('step').textContent) >= 24");
    await page.evaluate("player.device.destroy()");
    await page.waitForSelector("#notice:has-text('Training is back at step 21')");
    expect(await page.textContent("#notice")).toMatch(/Press Go on to go on from there/);
    expect(await numberOf("step")).toBe(21);
    const same = await page.evaluate<boolean>(
      "player.state().then((state) => state.every((byte, k) => byte === kept[k]))",
    );
    expect(same).toBe(true);
    await page.click("#train:has-text('Go on')");
    await page.waitForFunction("parseInt(document.getElementById('step').textContent) >= 23");
    // Weights that were never trained give 2.3.
    expect(await numberOf("loss")).toBeLessThan(2);
    expect(await page.isVisible("#notice")).toBe(false);
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test("gpt: writes what PyTorch writes, stops, goes on", async () => {
    const facts = JSON.parse(await readFile(join(site, "gpt", "gpt.json"), "utf-8")) as {
      greedy: { prompt: string; text: string };
      read: { tokens: number[]; logits: number[] };
    };
    const { prompt, text } = facts.greedy;
    const page = await open("gpt/");
    await page.waitForSelector("#write:enabled");
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    await page.fill("#temperature", "0");
    await page.fill("#prompt", prompt);
    await page.fill("#length", String(text.length));
    await page.click("#write");
    await page.waitForSelector("#write:has-text('Write')");
    expect(text.length).toBeGreaterThan(3);
    expect(await page.textContent("#text")).toBe(prompt + text);
    expect(await page.textContent("#first")).toMatch(/^\d+ ms$/);

    // More tokens than the caches hold, from the first position again.
    const { tokens, logits } = facts.read;
    const found = await page.evaluate<number[]>(`(async () => {
      let out;
      const tokens = ${JSON.stringify(tokens)};
      for (const [k, token] of tokens.entries()) {
        const read = k === tokens.length - 1 ? ["logits"] : [];
        out = await player.step({ token: [token], position: [k] }, { read });
      }
      return [...out.logits];
    })()`);
    expect(found.length).toBe(256);
    const differences = found.map((logit, k) => Math.abs(logit - logits[k]!));
    expect(Math.max(...differences)).toBeLessThan(1e-3);

    await page.fill("#temperature", "0.8");
    await page.fill("#length", "10000");
    await page.click("#write");
    await page.waitForFunction("parseInt(document.getElementById('count').textContent) > 5");
    await page.click("#write");
    await page.waitForSelector("#more:enabled");
    const count = Number(await page.textContent("#count"));
    expect(count).toBeLessThan(10000);
    await page.fill("#length", "3");
    await page.click("#more");
    await page.waitForSelector("#more:enabled");
    expect(await page.textContent("#count")).toBe(String(count + 3));
    expect(await page.textContent("#speed")).toMatch(/^[\d.]+$/);

    await page.fill("#prompt", "");
    await page.click("#write");
    await page.waitForSelector("#notice:has-text('The prompt is empty')");
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test.skipIf(!existsSync(join(site, "similarity", "minilm.twg")))(
    "similarity: the cosines are PyTorch's",
    async () => {
      const page = await open("similarity/");
      await page.waitForSelector("#status[data-difference]");
      expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
      const difference = await page.getAttribute("#status", "data-difference");
      expect(Number(difference)).toBeLessThan(1e-5);
      expect(await page.locator("#matrix td").count()).toBe(36);
      // Meals, children and processors: the examples are pairs.
      const notes = await page.$$eval("#nearest small", (all) => all.map((one) => one.textContent));
      expect(notes.map((note) => Number(/nearest: (\d)/.exec(note!)![1]))).toEqual([
        2, 1, 4, 3, 6, 5,
      ]);
      await page.waitForSelector("#compare:enabled");
      await page.fill("#sentences", "Only one");
      await page.click("#compare");
      await page.waitForSelector("#notice:has-text('at least two sentences')");
      // A long sentence goes through the other function, which takes long to compile.
      if (long) {
        await page.fill("#sentences", `A man is eating food.\nA man ${"really ".repeat(30)}eats.`);
        await page.click("#compare");
        await page.waitForSelector("#status:has-text('1 sentence computed')");
        expect(await page.isVisible("#notice")).toBe(false);
      }
      await page.close();
      expect(errors).toEqual([]);
    },
    170_000,
  );

  test("playground: runs, prints as PyTorch does, stops, shows errors", async () => {
    const here = import.meta.dirname;
    const program = await readFile(join(here, "site", "program.ts"), "utf-8");
    const printed = await readFile(join(here, "files", "site", "playground.json"), "utf-8");
    const page = await open("playground/");
    const run = async (code: string, status: string): Promise<string> => {
      await page.fill("#code", code);
      await page.click("#run:enabled");
      await page.waitForSelector(`#status:has-text('${status}')`);
      return (await page.locator("#output").innerText()).trim();
    };
    expect(await run(program, "Done")).toBe((JSON.parse(printed) as string).trim());
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    const head = 'import { torch } from "torch-webgpu/torch";\n';
    expect(await run(`${head}\ntorch.ones([2, 3]).matmul(torch.ones([2]));`, "Failed")).toMatch(
      /^RuntimeError: .*\n {2}at line 3$/,
    );
    expect(await run("const a: number = ;", "Failed")).toMatch(/^SyntaxError: .*\n {2}at line 1$/);
    expect(await run('import "fs";', "Failed")).toContain('imports "torch-webgpu/torch" only');
    await page.fill("#code", "for (;;) {}");
    await page.click("#run:enabled");
    await page.click("#run:has-text('Stop')");
    await page.waitForSelector("#status:has-text('Stopped')");
    expect(await run("print([1, 'two', { three: 3n }]);", "Done")).toBe('[1, "two", {three: 3}]');
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test("playground: what was typed is there again, whatever was picked since", async () => {
    const page = await open("playground/");
    await page.waitForSelector("#run:enabled");
    const pick = (name: string) => page.selectOption("#example", name);
    const code = () => page.inputValue("#code");
    const begun = await code();
    expect(await page.isVisible("#restore")).toBe(false);
    await page.fill("#code", "print('mine');");
    await pick("Autograd");
    expect(await code()).toContain("backward()");
    await pick("Your own program");
    await page.locator("#code").press("Control+End");
    await page.locator("#code").pressSequentially("print(42);");
    await pick("Tensors");
    expect(await code()).toBe("print('mine');");
    expect(await page.textContent("#example option:checked")).toBe("Tensors (changed)");
    await page.reload();
    expect(await code()).toBe("print('mine');");
    await pick("Your own program");
    expect(await code()).toMatch(/^import .*\n\nprint\(42\);$/);
    // As it began, after a question.
    await pick("Tensors");
    page.once("dialog", (dialog) => void dialog.dismiss());
    await page.click("#restore");
    expect(await code()).toBe("print('mine');");
    page.once("dialog", (dialog) => void dialog.accept());
    await page.click("#restore");
    expect(await code()).toBe(begun);
    expect(await page.isVisible("#restore")).toBe(false);
    await page.reload();
    expect(await code()).toBe(begun);
    // What is kept may be anything.
    for (const kept of [
      "{",
      "null",
      '{"open":"toString","changed":{"Tensors":3,"__proto__":"x"}}',
    ]) {
      await page.evaluate(
        `localStorage.setItem("torch-webgpu playground", ${JSON.stringify(kept)})`,
      );
      await page.reload();
      expect(await code()).toBe(begun);
    }
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    await page.close();
    // A browser that keeps nothing.
    const closed = await open("playground/", async (fresh) => {
      await fresh.addInitScript(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })",
      );
    });
    await closed.fill("#code", "print('mine');");
    await closed.selectOption("#example", "Autograd");
    await closed.selectOption("#example", "Tensors");
    expect(await closed.inputValue("#code")).toBe("print('mine');");
    await closed.close();
    expect(errors).toEqual([]);
  });

  test("resnet: the logits are PyTorch's, and a state dict can be loaded", async () => {
    const page = await open("resnet/");
    await page.waitForSelector("#status[data-difference]");
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    expect(Number(await page.getAttribute("#status", "data-difference"))).toBeLessThan(1e-4);
    const shares = await page.$$eval("#bars small", (all) => all.map((one) => one.textContent));
    expect(shares.length).toBe(8);
    // The same weights from a file, and one that is of no use.
    await page.setInputFiles("#weights", join(site, "resnet", "shapes.safetensors"));
    await page.waitForSelector("#facts:has-text('The weights of shapes.safetensors')");
    await page.waitForFunction(
      "/^Computed in [0-9]+ ms.$/.test(document.getElementById('status').textContent)",
    );
    expect(await page.textContent("#answer")).toMatch(/^class \d: \d+ %$/);
    expect(await page.$$eval("#bars small", (all) => all.map((one) => one.textContent))).toEqual(
      shares,
    );
    await page.setInputFiles("#weights", join(site, "resnet", "pictures.bin"));
    await page.waitForSelector("#notice:visible");
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000);

  const click = (page: Page, id: string) =>
    page.evaluate(`document.getElementById("${id}").click()`);

  test("digits: quick clicks begin one thing at a time", async ({ skip }) => {
    skip(!long, "gpt has the same clicks");
    const digits = await open("digits/");
    await digits.waitForSelector("#train:enabled");
    await digits.evaluate(`{
      const work = page.trainStep.bind(page);
      let under_way = 0;
      globalThis.most = 0;
      page.trainStep = async () => {
        most = Math.max(most, ++under_way);
        await work();
        --under_way;
      };
    }`);
    for (let k = 0; k < 5; k++) {
      await click(digits, "train");
    }
    // Not before the step under way is done.
    await click(digits, "restart");
    await digits.waitForSelector("#train:enabled:has-text('Go on')");
    expect(await digits.evaluate("most")).toBe(1);
    await digits.click("#restart");
    await digits.waitForSelector("#train:enabled:has-text('Train')");
    expect(await digits.textContent("#step")).toMatch(/^0 of/);
    expect(await digits.textContent("#loss")).toBe("–");
    await digits.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test("gpt: quick clicks begin one thing at a time", async () => {
    const gpt = await open("gpt/");
    await gpt.waitForSelector("#write:enabled");
    for (let k = 0; k < 6; k++) {
      await click(gpt, "write");
    }
    await gpt.waitForSelector("#write:enabled:has-text('Write')");
    const prompt = await gpt.inputValue("#prompt");
    const count = Number(await gpt.textContent("#count"));
    expect((await gpt.textContent("#text"))!.length).toBeLessThanOrEqual(prompt.length + count);
    await gpt.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test("files are dropped anywhere on the page", async () => {
    const drop = (page: Page, name: string) =>
      page.evaluate(`{
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(["no weights"], "${name}"));
        for (const kind of ["dragover", "drop"]) {
          const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
          document.body.dispatchEvent(event);
          globalThis.stays = event.defaultPrevented;
        }
        stays;
      }`);
    const page = await open("digits/");
    await page.waitForSelector("#train:enabled");
    expect(await drop(page, "mine.safetensors")).toBe(true);
    await page.waitForSelector("#notice:has-text('it is no safetensors file')");
    expect(await page.isEnabled("#train")).toBe(true);
    await page.close();
    expect(errors).toEqual([]);
  });

  test("playground: without its server the last output stays, and Run tries again", async () => {
    const page = await open("playground/");
    await page.waitForSelector("#run:enabled");
    await page.route("**/worker.js", (route) => route.abort());
    await page.fill("#code", "print(1 + 1);");
    await page.click("#run");
    await page.waitForSelector("#notice:has-text('cannot be loaded')");
    expect((await page.locator("#output").innerText()).trim()).toBe("2");
    errors.length = 0; // the browser's own, of the request that failed
    await page.unroute("**/worker.js");
    await page.fill("#code", "print(2 + 2);");
    await page.click("#run");
    await page.waitForSelector("#output:has-text('4')");
    expect(await page.isVisible("#notice")).toBe(false);
    await page.close();
    expect(errors).toEqual([]);
  }, 170_000);

  test.each(["", "digits/", "gpt/", "similarity/", "playground/", "operators/", "resnet/"])(
    "without WebGPU: %s",
    async (where) => {
      const page = await open(where, async (fresh) => {
        await fresh.addInitScript("Object.defineProperty(navigator, 'gpu', { value: undefined })");
      });
      await page.waitForSelector("#notice:visible");
      expect(await page.textContent("#notice")).toMatch(/no WebGPU\. Open this page in/);
      await page.close();
      expect(errors).toEqual([]);
    },
  );

  const typed = ["digits/digits.twg", "gpt/gpt.twg", "similarity/minilm.twg"];
  const exported = typed.filter((file) => existsSync(join(site, file)));
  test.each(exported)("the types of %s are those that export wrote", async (file) => {
    const here = join(import.meta.dirname, "..", "site", `${file}.d.ts`);
    const plain = (text: Buffer) => text.toString().replace(/from ".*"/, "");
    const written = await readFile(join(site, `${file}.d.ts`));
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

import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { serve } from "../tools/serve.mjs";

let folder: string;
let server: Awaited<ReturnType<typeof serve>>;
let address: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "serve-"));
  await mkdir(join(folder, "site", "page"), { recursive: true });
  await writeFile(join(folder, "secret"), "no");
  await writeFile(join(folder, "site", "data.twg"), "0123456789");
  await writeFile(join(folder, "site", "empty"), "");
  await writeFile(join(folder, "site", "page", "index.html"), "<p>page");
  server = await serve(join(folder, "site"));
  address = `http://localhost:${(server.address() as AddressInfo).port}`;
});

afterAll(async () => {
  server.close();
  await rm(folder, { recursive: true });
});

const get = (path: string, range?: string) =>
  fetch(`${address}/${path}`, { headers: range === undefined ? {} : { range } });

test("a whole file", async () => {
  const response = await get("data.twg");
  expect(response.status).toBe(200);
  expect(response.headers.get("accept-ranges")).toBe("bytes");
  expect(await response.text()).toBe("0123456789");
  expect(await (await get("empty")).text()).toBe("");
});

test.each([
  ["bytes=0-3", "0123", "bytes 0-3/10"],
  ["bytes=4-", "456789", "bytes 4-9/10"],
  ["bytes=-2", "89", "bytes 8-9/10"],
  ["bytes=8-100", "89", "bytes 8-9/10"],
])("the range %s", async (range, text, where) => {
  const response = await get("data.twg", range);
  expect(response.status).toBe(206);
  expect(response.headers.get("content-range")).toBe(where);
  expect(await response.text()).toBe(text);
});

test("ranges that the file does not have, and headers that are none", async () => {
  expect((await get("data.twg", "bytes=10-12")).status).toBe(416);
  expect((await get("data.twg", "bytes=5-3")).status).toBe(416);
  expect((await get("data.twg", "lines=1-2")).status).toBe(200);
});

test("folders, and files that do not exist", async () => {
  const page = await get("page");
  expect(page.url).toBe(`${address}/page/`);
  expect(await page.text()).toBe("<p>page");
  expect((await get("nothing")).status).toBe(404);
  expect((await get("page%00")).status).toBe(404);
});

// fetch() resolves dots itself.
test.each(["/../secret", "/..%2fsecret", "/%2e%2e/secret", "/page/..%2f..%2fsecret"])(
  "nothing outside of the folder: %s",
  async (path) => {
    const status = await new Promise((done, fail) => {
      const port = (server.address() as AddressInfo).port;
      request({ host: "localhost", port, path }, (response) => {
        response.resume();
        done(response.statusCode);
      })
        .on("error", fail)
        .end();
    });
    expect(status).toBe(404);
  },
);

test("only reading", async () => {
  expect((await fetch(`${address}/data.twg`, { method: "PUT", body: "x" })).status).toBe(405);
});

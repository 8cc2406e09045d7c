// Serves a folder of static files with byte ranges, which Python's http.server does not answer.
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, extname, join, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".wasm": "application/wasm",
};

/** The first and the last byte that a Range header asks for; null for one that is to be ignored,
 * undefined for one that the file does not have. */
function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (match === null || (match[1] === "" && match[2] === "")) {
    return null;
  }
  const [first, last] =
    match[1] === ""
      ? [Math.max(0, size - Number(match[2])), size - 1]
      : [Number(match[1]), match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1)];
  return first <= last && first < size ? [first, last] : undefined;
}

async function answer(root, request, response) {
  const end = (status, headers = {}) => response.writeHead(status, headers).end();
  if (request.method !== "GET" && request.method !== "HEAD") {
    return end(405, { allow: "GET, HEAD" });
  }
  let path;
  try {
    path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
  } catch {
    return end(400);
  }
  let file = resolve(join(root, path));
  if (path.includes("\0") || (file !== root && !file.startsWith(root + sep))) {
    return end(404);
  }
  let info = await stat(file).catch(() => null);
  if (info?.isDirectory()) {
    if (!path.endsWith("/")) {
      return end(301, { location: `${path}/` });
    }
    file = join(file, "index.html");
    info = await stat(file).catch(() => null);
  }
  if (!info?.isFile()) {
    return end(404);
  }
  const headers = {
    "content-type": TYPES[extname(file)] ?? "application/octet-stream",
    "accept-ranges": "bytes",
    "cache-control": "no-cache",
    etag: `"${info.size.toString(16)}-${Math.floor(info.mtimeMs).toString(16)}"`,
  };
  if (request.headers["if-none-match"] === headers.etag) {
    return end(304, headers);
  }
  const range = parseRange(request.headers.range, info.size);
  if (range === undefined) {
    return end(416, { "content-range": `bytes */${info.size}` });
  }
  const [first, last] = range ?? [0, info.size - 1];
  response.writeHead(range === null ? 200 : 206, {
    ...headers,
    "content-length": last - first + 1,
    ...(range === null ? {} : { "content-range": `bytes ${first}-${last}/${info.size}` }),
  });
  if (request.method === "HEAD" || info.size === 0) {
    return response.end();
  }
  const stream = createReadStream(file, { start: first, end: last });
  stream.on("error", () => response.destroy());
  response.on("close", () => stream.destroy());
  stream.pipe(response);
}

/** Starts a server of the folder `root` on this machine only. Resolves to the http.Server once it
 * listens; port 0 takes any free one. */
export async function serve(root, port = 0) {
  root = resolve(root);
  const server = createServer((request, response) => {
    answer(root, request, response).catch(() => response.destroy());
  });
  await new Promise((done, fail) => {
    server.once("error", fail);
    server.listen(port, "127.0.0.1", done);
  });
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const web = dirname(dirname(fileURLToPath(import.meta.url)));
  const wanted = Number(process.env.PORT ?? 8080);
  const folder = process.argv[2] ?? join(web, "dist", "site");
  const server = await serve(folder, wanted).catch((error) => {
    if (error.code !== "EADDRINUSE") {
      throw error;
    }
    return serve(folder, 0);
  });
  console.log(`http://localhost:${server.address().port}/`);
}

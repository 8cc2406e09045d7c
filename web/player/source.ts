/** Where a file's bytes come from: memory, a Blob, or an address that is fetched by range. */

import { refuse } from "./errors";

/** Bytes are read in ascending order; a read that goes back may begin the transfer anew. */
export interface Source {
  /** Bytes of the whole file, once something was read; undefined if that is not known. */
  readonly size: number | undefined;
  /** Has `take` receive the bytes from `begin` to `end` in order, in pieces that are its own only
   * until it returns. Throws GraphFileError if the file ends before. */
  read(begin: number, end: number, take: Take, signal?: AbortSignal): Promise<void>;
  /** Throws GraphFileError if the file goes on after `end`, where that can be seen. */
  expectEnd(end: number): Promise<void>;
  close(): void;
}

type Take = (bytes: Uint8Array<ArrayBuffer>) => void | Promise<void>;

function truncated(): never {
  refuse("it is truncated");
}

function tooLong(): never {
  refuse("bytes follow its tensors");
}

class MemorySource implements Source {
  readonly size: number;
  constructor(private readonly bytes: Uint8Array<ArrayBuffer>) {
    this.size = bytes.length;
  }

  async read(begin: number, end: number, take: Take, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (end > this.size) {
      truncated();
    }
    await take(this.bytes.subarray(begin, end));
  }

  async expectEnd(end: number): Promise<void> {
    if (this.size > end) {
      tooLong();
    }
  }

  close(): void {
    // There is nothing to close.
  }
}

class BlobSource implements Source {
  readonly size: number;
  constructor(private readonly blob: Blob) {
    this.size = blob.size;
  }

  async read(begin: number, end: number, take: Take, signal?: AbortSignal): Promise<void> {
    if (end > this.size) {
      truncated();
    }
    for (let at = begin; at < end; at += STEP) {
      signal?.throwIfAborted();
      const part = this.blob.slice(at, Math.min(at + STEP, end));
      await take(new Uint8Array(await part.arrayBuffer()));
    }
  }

  async expectEnd(end: number): Promise<void> {
    if (this.size > end) {
      tooLong();
    }
  }

  close(): void {
    // There is nothing to close.
  }
}

/** Bytes that a Blob is read by. */
const STEP = 4 << 20;
/** The first request asks for this much: most headers, and small files whole. */
const FIRST_REQUEST = 256 << 10;
/** A request asks for at most this much, and the cache keeps pieces of this size: at most 64 MB. */
export const PIECE = 60 << 20;
/** After so many failures in a row, without a byte in between, the fetch is given up. */
const ATTEMPTS = 5;
const FIRST_WAIT_MS = 200;
const CACHE = "torch-webgpu";

/** A request that was not answered as it should be, which another attempt would not change. */
class Refused extends Error {}

function parseContentRange(header: string | null): { begin: number; total?: number } | null {
  const match = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(header ?? "");
  if (match === null) {
    return null;
  }
  const begin = Number(match[1]);
  return match[2] === "*" ? { begin } : { begin, total: Number(match[2]) };
}

class HttpSource implements Source {
  size: number | undefined;
  /** The response that is being read: where its next byte lies in the file, and where it ends. */
  private open: {
    reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>;
    end: number;
  } | null = null;
  private position = 0;
  private rest: Uint8Array<ArrayBuffer> | null = null;
  private ignoresRange = false;
  /** ETag or date of the file, which may not change while it is read. */
  private version: string | undefined;
  private cache: Promise<Cache | null> | null = null;

  constructor(
    private readonly url: string,
    private readonly usesCache: boolean,
    private readonly fetch: typeof globalThis.fetch,
  ) {}

  close(): void {
    this.open?.reader.cancel().catch(() => undefined);
    this.open = null;
    this.rest = null;
  }

  async read(begin: number, end: number, take: Take, signal?: AbortSignal): Promise<void> {
    if (this.size !== undefined && end > this.size) {
      truncated();
    }
    // Pieces lie at multiples of their size, so that a later visit finds the same ones.
    for (let at = begin; at < end;) {
      const stop = Math.min(end, (Math.floor(at / PIECE) + 1) * PIECE);
      await this.readPiece(at, stop, take, signal);
      at = stop;
    }
  }

  private async readPiece(
    begin: number,
    end: number,
    take: Take,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const cache = begin === 0 ? null : await this.cached();
    const key = this.keyOf(begin, end);
    const found = await cache?.match(key).catch(() => undefined);
    if (found !== undefined) {
      const bytes = new Uint8Array(await found.arrayBuffer());
      if (bytes.length === end - begin) {
        await take(bytes);
        return;
      }
    }
    const kept: Uint8Array<ArrayBuffer>[] = [];
    const keepAndTake: Take = async (bytes) => {
      if (cache !== null) {
        kept.push(bytes.slice());
      }
      await take(bytes);
    };
    await this.download(begin, end, keepAndTake, signal);
    // A full disk is no error: the next visit fetches again.
    await cache?.put(key, new Response(new Blob(kept))).catch(() => undefined);
  }

  private keyOf(begin: number, end: number): string {
    // With the size of the pieces: those of another size are of no use, and are deleted like those
    // of another version.
    const version = encodeURIComponent(`${PIECE}:${this.version ?? ""}`);
    return `${this.url.replace(/#.*/, "")}#${version}-${begin}-${end}`.replace("#", "%23twg-");
  }

  /** The browser's cache, if there is one and the file's version is known. Pieces of other versions
   * and sizes are deleted. */
  private cached(): Promise<Cache | null> {
    this.cache ??= (async () => {
      if (!this.usesCache || this.version === undefined || typeof caches === "undefined") {
        return null;
      }
      try {
        const cache = await caches.open(CACHE);
        const mine = this.keyOf(0, 0).replace(/-0-0$/, "-");
        const all = mine.slice(0, mine.lastIndexOf("%23twg-") + 7);
        const address = (key: string) => new Request(key).url;
        for (const request of await cache.keys()) {
          if (request.url.startsWith(address(all)) && !request.url.startsWith(address(mine))) {
            await cache.delete(request);
          }
        }
        return cache;
      } catch {
        return null; // private windows refuse
      }
    })();
    return this.cache;
  }

  /** Fetches bytes; after a break, goes on from the last byte that arrived. */
  private async download(
    begin: number,
    end: number,
    take: Take,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    let at = begin;
    let failures = 0;
    while (at < end) {
      let bytes: Uint8Array<ArrayBuffer>;
      try {
        await this.seek(at, end, signal);
        bytes = await this.next(end);
      } catch (error) {
        this.close();
        signal?.throwIfAborted();
        if (!(error instanceof TypeError || error instanceof Broken)) {
          throw error instanceof Refused ? refuse(error.message) : error;
        }
        if (++failures >= ATTEMPTS) {
          const reason = error instanceof Error ? error.message : String(error);
          throw new Error(`cannot fetch ${this.url}: ${reason}`, { cause: error });
        }
        await new Promise((done) => setTimeout(done, FIRST_WAIT_MS * 2 ** (failures - 1)));
        signal?.throwIfAborted();
        continue;
      }
      failures = 0;
      at += bytes.length;
      await take(bytes);
    }
  }

  /** The next bytes of the open response, not beyond `end`. */
  private async next(end: number): Promise<Uint8Array<ArrayBuffer>> {
    let bytes = this.rest;
    this.rest = null;
    while (bytes === null || bytes.length === 0) {
      const { done, value } = await this.open!.reader.read();
      if (done) {
        const isWhole = this.ignoresRange && this.open!.end === Infinity;
        this.open = null;
        // The end of a response whose length is not known may be the end of the file.
        throw isWhole ? new Refused("it is truncated") : new Broken("the connection broke off");
      }
      bytes = value;
    }
    const wanted = end - this.position;
    if (bytes.length > wanted) {
      this.rest = bytes.subarray(wanted);
      bytes = bytes.subarray(0, wanted);
    }
    this.position += bytes.length;
    return bytes;
  }

  /** Makes `at` the next byte of the open response. */
  private async seek(at: number, end: number, signal: AbortSignal | undefined): Promise<void> {
    const isOpen = this.open !== null && this.position <= at && at < this.open.end;
    const far = !this.ignoresRange && at - this.position > FIRST_REQUEST;
    if (!isOpen || far) {
      this.close();
      await this.request(at, Math.max(end, at + FIRST_REQUEST), signal);
      if (this.size !== undefined && end > this.size) {
        throw new Refused("it is truncated");
      }
    }
    while (this.position < at) {
      await this.next(at);
    }
  }

  private async request(begin: number, end: number, signal: AbortSignal | undefined) {
    const last = this.size === undefined ? end - 1 : Math.min(end, this.size) - 1;
    const { fetch } = this; // not as a method: browsers refuse that
    const response = await fetch(this.url, {
      headers: { range: `bytes=${begin}-${last}` },
      // Parts of a file are not for the browser's own cache.
      cache: this.ignoresRange ? "default" : "no-store",
      signal: signal ?? null,
    });
    if (response.status >= 500 || response.status === 429) {
      await response.body?.cancel();
      throw new Broken(`status ${response.status}`);
    }
    if (response.status === 416) {
      await response.body?.cancel();
      throw new Refused("it is truncated");
    }
    if (!response.ok || response.body === null) {
      await response.body?.cancel();
      throw new Error(`cannot fetch ${this.url}: status ${response.status}`);
    }
    const version = response.headers.get("etag") ?? response.headers.get("last-modified");
    if (this.version !== undefined && version !== null && version !== this.version) {
      await response.body.cancel();
      throw new Refused(`${this.url} changed while it was fetched`);
    }
    this.version = version ?? undefined;
    this.position = 0;
    let stop = Infinity;
    const length = response.headers.get("content-length");
    const isEncoded = response.headers.get("content-encoding") !== null;
    if (response.status === 206) {
      const range = parseContentRange(response.headers.get("content-range"));
      // Without that header, which another origin may hide, the answer is what was asked for.
      this.position = range?.begin ?? begin;
      this.size ??= range?.total;
      stop = length === null || isEncoded ? last + 1 : this.position + Number(length);
    } else {
      this.ignoresRange = true;
      if (length !== null && !isEncoded) {
        this.size ??= Number(length);
        stop = Number(length);
      }
    }
    if (this.position > begin) {
      await response.body.cancel();
      throw new Error(`${this.url} answered with another range than was asked for`);
    }
    const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
    this.open = { reader, end: stop };
  }

  async expectEnd(end: number): Promise<void> {
    if (this.size !== undefined) {
      return this.size > end ? tooLong() : undefined;
    }
    if (this.rest !== null && this.rest.length > 0 && this.position === end) {
      tooLong();
    }
    if (this.ignoresRange && this.open !== null && this.position === end) {
      const { done } = await this.open.reader.read();
      this.open = null;
      if (!done) {
        tooLong();
      }
    }
  }
}

/** A break that another attempt may mend. */
class Broken extends Error {}

export interface SourceOptions {
  /** Whether pieces of a fetched file go to the browser's cache. */
  cache?: boolean;
  fetch?: typeof globalThis.fetch;
}

/** Throws TypeError for what is no address, no bytes and no Blob. */
export function openSource(
  file: string | URL | ArrayBuffer | Uint8Array | Blob,
  options: SourceOptions,
): Source {
  if (typeof file === "string" || file instanceof URL) {
    const base = typeof location === "undefined" ? undefined : location.href;
    const fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    return new HttpSource(new URL(file, base).href, options.cache ?? true, fetch);
  }
  if (file instanceof Blob) {
    return new BlobSource(file);
  }
  if (ArrayBuffer.isView(file)) {
    return new MemorySource(
      new Uint8Array(file.buffer as ArrayBuffer, file.byteOffset, file.byteLength),
    );
  }
  if (
    file instanceof ArrayBuffer ||
    Object.prototype.toString.call(file) === "[object ArrayBuffer]"
  ) {
    return new MemorySource(new Uint8Array(file));
  }
  throw new TypeError("a graph file is an address, an ArrayBuffer, a Uint8Array or a Blob");
}

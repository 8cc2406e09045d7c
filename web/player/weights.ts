/** Streams the tensors of a file into buffers of a device. */

import type { Program } from "./format";
import type { Machine, Part } from "./machine";
import type { Entry, Header } from "./safetensors";
import { PIECE, type Source } from "./source";

/** Writes the bytes of a tensor, in order, to a buffer. WebGPU writes whole words, so up to three
 * bytes wait for those that follow. */
class WordWriter {
  private at = 0;
  private readonly waiting = new Uint8Array(4);
  private count = 0;

  constructor(
    private readonly machine: Machine,
    private readonly buffer: number,
  ) {}

  push(bytes: Uint8Array): void {
    while (this.count > 0 && bytes.length > 0) {
      this.waiting[this.count++] = bytes[0]!;
      bytes = bytes.subarray(1);
      if (this.count === 4) {
        this.flush(this.waiting);
        this.count = 0;
      }
    }
    const whole = bytes.length - (bytes.length % 4);
    this.flush(bytes.subarray(0, whole));
    for (const byte of bytes.subarray(whole)) {
      this.waiting[this.count++] = byte;
    }
  }

  end(): void {
    this.flush(this.waiting.subarray(0, this.count));
    this.count = 0;
  }

  private flush(bytes: Uint8Array): void {
    this.machine.write(this.buffer, this.at, bytes);
    this.at += bytes.length;
  }
}

interface Wanted {
  readonly entry: Entry;
  readonly push: (bytes: Uint8Array) => void;
  readonly end: () => void;
}

/** Reads the tensors that buffers start with, and those of `loose` into buffers of their own, in the
 * order of the file. `start` is where the tensors begin. */
export async function readTensors(
  program: Program,
  header: Header,
  source: Source,
  start: number,
  machine: Machine,
  loose: ReadonlyMap<string, readonly Part[]>,
  onBytes: (ready: number, all: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const wanted: Wanted[] = [];
  const want = (entry: Entry, buffer: number) => {
    const writer = new WordWriter(machine, buffer);
    wanted.push({ entry, push: (bytes) => writer.push(bytes), end: () => writer.end() });
  };
  program.buffers.forEach(({ entry: name }, buffer) => {
    if (name !== undefined) {
      want(header.entries.get(name)!, buffer);
    }
  });
  for (const [name, parts] of loose) {
    const entry = header.entries.get(name)!;
    let { begin } = entry;
    for (const { buffer, bytes } of parts) {
      want({ ...entry, begin, end: begin + bytes }, buffer);
      begin += bytes;
    }
  }
  wanted.sort((a, b) => a.entry.begin - b.entry.begin);
  const all = wanted.reduce((sum, { entry }) => sum + entry.end - entry.begin, 0);
  let ready = 0;
  let unfinished = 0;
  onBytes(0, all);
  for (let k = 0; k < wanted.length;) {
    // Tensors that follow each other are read at once; buffers may share one.
    const begin = wanted[k]!.entry.begin;
    let end = begin;
    let next = k;
    while (next < wanted.length && wanted[next]!.entry.begin <= end) {
      end = Math.max(end, wanted[next]!.entry.end);
      ++next;
    }
    const group = wanted.slice(k, next);
    k = next;
    let at = begin;
    await source.read(
      start + begin,
      start + end,
      async (bytes) => {
        for (const { entry, push } of group) {
          const from = Math.max(entry.begin - at, 0);
          const to = Math.min(entry.end - at, bytes.length);
          if (from < to) {
            push(bytes.subarray(from, to));
            ready += to - from;
          }
        }
        at += bytes.length;
        onBytes(ready, all);
        unfinished += bytes.length;
        if (unfinished >= PIECE) {
          // What is written is copied first, so let the device catch up.
          await machine.device.queue.onSubmittedWorkDone();
          unfinished = 0;
        }
      },
      signal,
    );
    group.forEach(({ end: finish }) => finish());
  }
  await source.expectEnd(start + header.bytes);
}

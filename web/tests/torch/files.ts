// Files that the Python scripts of this folder recorded.
import { readFileSync } from "node:fs";

const url = (name: string): URL => new URL(`../files/torch/${name}`, import.meta.url);

export const bytesOf = (name: string): Uint8Array => new Uint8Array(readFileSync(url(name)));
export const jsonOf = <T>(name: string): T => JSON.parse(readFileSync(url(name), "utf8")) as T;

/** The bytes that base64 stands for, in a buffer of their own. */
export function bytesFrom(base64: string): Uint8Array<ArrayBuffer> {
  const bytes = Buffer.from(base64, "base64");
  return new Uint8Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

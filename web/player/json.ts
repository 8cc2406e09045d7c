/** JSON whose integers are exact: those beyond 2^53 become bigint, which JSON.parse would round. */

import { refuse } from "./errors";

export type Json = null | boolean | number | bigint | string | Json[] | JsonObject;
/** Without a prototype, so that no name has a meaning of its own. */
export interface JsonObject {
  [name: string]: Json;
}

// Deeper than what any part of the format allows.
const DEEPEST = 400;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;

/** Throws GraphFileError for what is not JSON, and for an object with two members of one name. */
export function parseJson(text: string): Json {
  let at = 0;

  function fail(): never {
    refuse(`it has malformed JSON at character ${at}`);
  }

  function space(): void {
    SPACE.lastIndex = at;
    SPACE.test(text);
    at = SPACE.lastIndex;
  }

  function string(): string {
    const start = at++;
    for (;;) {
      const end = text.indexOf('"', at);
      if (end < 0) {
        fail();
      }
      let slashes = 0;
      while (text[end - 1 - slashes] === "\\") {
        ++slashes;
      }
      at = end + 1;
      if (slashes % 2 === 0) {
        try {
          return JSON.parse(text.slice(start, at)) as string;
        } catch {
          fail();
        }
      }
    }
  }

  function number(): number | bigint {
    NUMBER.lastIndex = at;
    const match = NUMBER.exec(text);
    if (match === null) {
      fail();
    }
    at = NUMBER.lastIndex;
    const value = Number(match[0]);
    const isInteger = match[1] === undefined && match[2] === undefined;
    if (!isInteger || Number.isSafeInteger(value)) {
      return value;
    }
    // A bigint takes time that grows with the square of the digits.
    return match[0].length > 40 ? fail() : BigInt(match[0]);
  }

  function word<T extends Json>(letters: string, value: T): T {
    if (!text.startsWith(letters, at)) {
      fail();
    }
    at += letters.length;
    return value;
  }

  function list(depth: number): Json[] {
    const items: Json[] = [];
    ++at;
    space();
    if (text[at] === "]") {
      ++at;
      return items;
    }
    for (;;) {
      items.push(value(depth + 1));
      const sign = text[at++];
      if (sign === "]") {
        return items;
      }
      if (sign !== ",") {
        --at;
        fail();
      }
    }
  }

  function object(depth: number): JsonObject {
    const members = Object.create(null) as JsonObject;
    ++at;
    space();
    if (text[at] === "}") {
      ++at;
      return members;
    }
    for (;;) {
      space();
      if (text[at] !== '"') {
        fail();
      }
      const name = string();
      if (name in members) {
        refuse(`it has JSON with two members ${JSON.stringify(name)} in one object`);
      }
      space();
      if (text[at] !== ":") {
        fail();
      }
      ++at;
      members[name] = value(depth + 1);
      const sign = text[at++];
      if (sign === "}") {
        return members;
      }
      if (sign !== ",") {
        --at;
        fail();
      }
    }
  }

  /** A value and the space around it. */
  function value(depth: number): Json {
    if (depth > DEEPEST) {
      refuse("its JSON is nested too deeply");
    }
    space();
    let result: Json;
    switch (text[at]) {
      case "{":
        result = object(depth);
        break;
      case "[":
        result = list(depth);
        break;
      case '"':
        result = string();
        break;
      case "t":
        result = word("true", true);
        break;
      case "f":
        result = word("false", false);
        break;
      case "n":
        result = word("null", null);
        break;
      default:
        result = number();
    }
    space();
    return result;
  }

  const result = value(0);
  if (at !== text.length) {
    fail();
  }
  return result;
}

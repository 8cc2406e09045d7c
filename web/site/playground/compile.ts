/** From a program's text to a function. */

import { transform } from "sucrase";

const FILE = "program.ts";
// Of the functions that the constructor below makes.
const LINES_BEFORE = 2;

type Program = (require: (name: string) => unknown, exports: object, print: Print) => Promise<void>;
export type Print = (...values: unknown[]) => Promise<void>;

const AsyncFunction = (async () => undefined).constructor as new (...parts: string[]) => Program;

/** Takes the types off TypeScript, and turns imports into calls. Lines keep their numbers. Raises
 * SyntaxError. */
export function compile(text: string): Program {
  const { code } = transform(text, { transforms: ["typescript", "imports"], filePath: FILE });
  return new AsyncFunction("require", "exports", "print", `${code}\n//# sourceURL=${FILE}`);
}

/** An error with the line of the program that it comes from, if it is known. */
export function explain(error: unknown): string {
  if (!(error instanceof Error)) {
    return `thrown: ${String(error)}`;
  }
  // sucrase knows the place of what it cannot read.
  const { loc } = error as { loc?: { line: number } };
  const found = new RegExp(`${FILE}:(\\d+)`).exec(error.stack ?? "");
  const line = loc?.line ?? (found === null ? null : Number(found[1]) - LINES_BEFORE);
  const message = error.message.replace(/^Error transforming [^:]*: /, "");
  return `${error.name}: ${message}${line === null ? "" : `\n  at line ${line}`}`;
}

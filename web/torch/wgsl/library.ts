// Completes shaders with the library functions that they use.
import { library } from "./data";

const needs = new Map<string, string[]>();
let order: Map<string, number> | undefined;

const words = (text: string): Set<string> => new Set(text.match(/[A-Za-z_]\w*/g));

function libraryNames(text: string): string[] {
  return [...words(text)].filter((word) => Object.hasOwn(library, word));
}

function needsOf(name: string): string[] {
  let names = needs.get(name);
  if (names === undefined) {
    names = libraryNames(library[name]!).filter((other) => other !== name);
    needs.set(name, names);
  }
  return names;
}

/** The text with the library's declarations behind it that it needs, also through others. */
export function completed(text: string): string {
  order ??= new Map(Object.keys(library).map((name, place) => [name, place]));
  const places = order;
  const own = new Set(
    [...text.matchAll(/^(?:fn|const|var<private>|struct|alias) (\w+)/gm)].map((match) => match[1]!),
  );
  const wanted = new Set<string>();
  const open = libraryNames(text);
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    if (!own.has(name) && !wanted.has(name)) {
      wanted.add(name);
      open.push(...needsOf(name));
    }
  }
  const names = [...wanted].sort((a, b) => places.get(a)! - places.get(b)!);
  return text + names.map((name) => `${library[name]!}\n`).join("");
}

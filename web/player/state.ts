/** States as safetensors files, and back. */

import { shapeOf, visitTree } from "./check";
import type { Tree, View } from "./format";
import type { Values } from "./expressions";

/** Keys of the metadata of a file that Player.state() wrote. */
export const STATE_KEY = "torch_webgpu.state";
export const NUMBERS_KEY = "torch_webgpu.numbers";

export interface StateTensor {
  readonly name: string;
  readonly view: View;
  readonly shape: number[];
}

/** The tensors of states with a name for each: the keys that lead to it, joined by dots. */
export function listTensors(
  states: ReadonlyMap<string, Tree>,
  values: Values,
  only: string | undefined,
): StateTensor[] {
  const found: StateTensor[] = [];
  const names = new Set<string>(["__metadata__"]);
  for (const [label, tree] of states) {
    if (only === undefined || only === label) {
      visitTree(tree, only === undefined ? label : "", (view, path) => {
        let name = path;
        while (names.has(name)) {
          name += "_";
        }
        names.add(name);
        found.push({ name, view, shape: shapeOf(view, values) });
      });
    }
  }
  return found;
}

/** A tree as JSON, in which `names` are those of its tensors in their order. */
function toJson(tree: Tree, names: Iterator<string>): string {
  switch (tree.kind) {
    case "tensor":
      return `{"tensor":${JSON.stringify(names.next().value)}}`;
    case "dict": {
      const pairs = tree.items.map(
        ([key, item]) =>
          `[${typeof key === "string" ? JSON.stringify(key) : key},${toJson(item, names)}]`,
      );
      return `{"dict":[${pairs.join()}]}`;
    }
    case "list":
    case "tuple":
      return `{"${tree.kind}":[${tree.items.map((item) => toJson(item, names)).join()}]}`;
    case "value": {
      const { value } = tree;
      return `{"value":${typeof value === "bigint" ? value : JSON.stringify(value)}}`;
    }
    case "float":
      return `{"float":${JSON.stringify(tree.text)}}`;
  }
}

export function statesToJson(states: ReadonlyMap<string, Tree>, tensors: StateTensor[]): string {
  const names = tensors.map(({ name }) => name)[Symbol.iterator]();
  const members = [...states].map(([label, tree]) => {
    return `${JSON.stringify(label)}:${toJson(tree, names)}`;
  });
  return `{${members.join()}}`;
}

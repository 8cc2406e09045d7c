/** States as safetensors files, and back. */

import { shapeOf, visitTree } from "./check";
import type { Program, Tree, View } from "./format";
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

/** Inputs that keep their values until a call sets them, such as learning rates, with names that none of `tensors` has. */
export function listKept(
  program: Program,
  values: Values,
  tensors: readonly StateTensor[],
): (StateTensor & { label: string })[] {
  const found: (StateTensor & { label: string })[] = [];
  const names = new Set(["__metadata__", ...tensors.map(({ name }) => name)]);
  const places = new Set<string>();
  for (const { inputs } of program.functions.values()) {
    for (const [label, view] of inputs) {
      const place = `${view.buffer} ${view.offset ?? 0} ${label}`;
      // Functions share an input of one name. One whose sizes calls decide is none of the program's own.
      if (!view.optional || places.has(place) || view.shape.some((s) => typeof s === "string")) {
        continue;
      }
      places.add(place);
      let name = `inputs.${label}`;
      while (names.has(name)) {
        name += "_";
      }
      names.add(name);
      found.push({ name, label, view, shape: shapeOf(view, values) });
    }
  }
  return found;
}

/** As Python's float.hex(), which a tree has. */
function toHex(value: number): string {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  const size = Math.abs(value);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (size === 0) {
    return `${sign}0x0.0p+0`;
  }
  let exponent = Math.floor(Math.log2(size));
  // The logarithm rounds.
  exponent += size / 2 ** exponent < 1 ? -1 : size / 2 ** exponent >= 2 ? 1 : 0;
  const digits = BigInt((size / 2 ** exponent) * 2 ** 52).toString(16);
  return `${sign}0x1.${digits.slice(1)}p${exponent < 0 ? "" : "+"}${exponent}`;
}

/** The number of the fewest digits that a float32 stands for: 0.1 of 0.10000000149. */
function fewestDigits(value: number): number {
  for (let digits = 1; digits < 9 && Number.isFinite(value); ++digits) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) {
      return short;
    }
  }
  return value;
}

const itemOf = (tree: Tree | undefined, key: string): Tree | undefined =>
  tree?.kind === "dict" ? tree.items.find(([name]) => name === key)?.[1] : undefined;

const withItem = (tree: Tree, key: string, item: Tree): Tree =>
  tree.kind === "dict"
    ? { ...tree, items: tree.items.map(([name, old]) => [name, name === key ? item : old]) }
    : tree;

/** The states with the learning rates that the optimizers have now, float32 by the names of their inputs: `lr`, or
 * `lr_NAME_0` and so on if there are several. The states of a file have those that it was exported with. */
export function withRates(
  states: ReadonlyMap<string, Tree>,
  rates: ReadonlyMap<string, number>,
): Map<string, Tree> {
  const groupsOf = (tree: Tree): readonly Tree[] => {
    const groups = itemOf(tree, "param_groups");
    return groups?.kind === "list" ? groups.items : [];
  };
  const count = [...states.values()].reduce((sum, tree) => sum + groupsOf(tree).length, 0);
  return new Map(
    [...states].map(([name, tree]) => {
      const items = groupsOf(tree).map((group, k) => {
        const rate = rates.get(count === 1 ? "lr" : `lr_${name}_${k}`);
        const isFloat = itemOf(group, "lr")?.kind === "float";
        return rate === undefined || !isFloat
          ? group
          : withItem(group, "lr", { kind: "float", text: toHex(fewestDigits(rate)) });
      });
      return [
        name,
        items.length === 0 ? tree : withItem(tree, "param_groups", { kind: "list", items }),
      ];
    }),
  );
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

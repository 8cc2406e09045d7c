// Each pointwise row of csrc/ops/pointwise/rows.yaml on single elements, special values among them, without a GPU.
import { expect, test } from "vitest";
import { pointwiseRows, type KindName } from "../torch/wgsl/data";
import { rowFunction, type Element } from "./cpu/rows";
import { bytesFrom, jsonOf } from "./torch/files";

interface Case {
  row: string;
  kind: KindName;
  scalars: number[];
  inputs: string[];
  /** What PyTorch gives; any of them is right. */
  results: string[];
  /** Whether they are bool, else of the inputs' dtype. */
  bool: boolean;
  exact: boolean;
  loose: boolean;
  /** Whether zeros may have either sign. */
  any_zero: boolean;
}

const { cases, without } = jsonOf<{ cases: Case[]; without: Record<string, string> }>("rows.json");

const KINDS = ["f32", "i32", "i64", "raw"] as const;
const ofKind = (kind: KindName): Case[] => cases.filter((one) => one.kind === kind);

function elements(data: string, kind: KindName): Element[] {
  const { buffer } = bytesFrom(data);
  if (kind === "f32") {
    return [...new Float32Array(buffer)];
  }
  if (kind === "i64") {
    const words = new Uint32Array(buffer);
    return Array.from({ length: words.length / 2 }, (_, i) => [words[2 * i]!, words[2 * i + 1]!]);
  }
  return [...new Int32Array(buffer)];
}

const scalarOf = (value: number, kind: KindName): Element =>
  kind === "i64"
    ? [value >>> 0, value < 0 ? 4294967295 : 0]
    : kind === "f32"
      ? Math.fround(value)
      : value;

const text = (value: Element): string => (Object.is(value, -0) ? "-0" : String(value));

function isRight(actual: Element, expected: Element, { exact, loose, any_zero }: Case): boolean {
  if (text(actual) === text(expected) || (any_zero && actual === expected)) {
    return true;
  }
  if (typeof actual !== "number" || typeof expected !== "number" || exact) {
    return false;
  }
  const [absolute, relative] = loose ? [8e-5, 16e-5] : [1e-5, 2e-5];
  return (
    actual === expected || Math.abs(actual - expected) <= absolute + relative * Math.abs(expected)
  );
}

function differences(one: Case): string[] {
  const operation = rowFunction(one.row, one.kind);
  const given = one.inputs.map((data) => elements(data, one.kind));
  const wanted: Element[][] = one.results.map((data) =>
    one.bool ? [...bytesFrom(data)].map((byte) => byte !== 0) : elements(data, one.kind),
  );
  const scalars = one.scalars.map((value) => scalarOf(value, one.kind));
  return wanted[0]!.flatMap((_, i) => {
    const right = wanted.map((values) => values[i]!);
    const inputs = given.map((column) => column[i]!);
    const found = operation(...inputs.map((x) => (one.kind === "raw" ? Number(x) : x)), ...scalars);
    const actual = one.kind === "raw" ? Number(found) | 0 : found;
    const call = [...inputs, ...scalars].map(text).join(", ");
    return right.some((expected) => isRight(actual, expected, one))
      ? []
      : [`${one.row}(${call}) is ${text(actual)}, not ${right.map(text).join(" or ")}`];
  });
}

test("every row is compared, or says why not", () => {
  const compared = new Set(cases.map(({ row, kind }) => `${row} ${kind}`));
  const wrong: string[] = [];
  for (const [name, row] of Object.entries(pointwiseRows)) {
    for (const kind of KINDS) {
      if (row.expressions[kind] === undefined || (kind === "raw" && name === "copy")) {
        continue;
      }
      const one = `${name} ${kind}`;
      if (compared.has(one) === (name in without || one in without)) {
        wrong.push(one);
      }
      // Each compiles, also those without a reference.
      rowFunction(name, kind);
    }
  }
  wrong.push(...Object.keys(without).filter((name) => !(name.split(" ")[0]! in pointwiseRows)));
  expect(wrong).toEqual([]);
});

test.each(
  KINDS.flatMap((kind) => ofKind(kind).map((one) => [one.row, kind, one.scalars, one] as const)),
)("%s of %s %j", (_row, _kind, _scalars, one) => {
  const found = differences(one);
  expect(found.slice(0, 8).join("\n")).toBe("");
});

// A pointwise row as a function of numbers: its expression, and the library functions that it uses, as JavaScript.
import { pointwiseRows, type KindName } from "../../torch/wgsl/data";
import { completed } from "../../torch/wgsl/library";
import { compile, instantiate } from "./compile";

/** A number, a bool, or the two words of an int64. */
export type Element = number | boolean | number[];

const TYPES: Record<KindName, string> = { f32: "f32", i32: "i32", i64: "vec2<u32>", raw: "u32" };

/** The row on elements of a kind: its inputs in order, then its scalar arguments. */
export function rowFunction(name: string, kind: KindName): (...args: Element[]) => Element {
  const row = pointwiseRows[name]!;
  const type = TYPES[kind];
  const parameters = [
    ...row.inputs.map(
      (one) => `${one}: ${kind === "raw" && row.bool_inputs.includes(one) ? "i32" : type}`,
    ),
    ...Array.from({ length: row.scalars }, (_, s) => `s${s}: ${type}`),
  ];
  const result = row.result === "bool" ? "bool" : type;
  const text = `fn op(${parameters.join(", ")}) -> ${result} { return ${row.expressions[kind]!}; }\n`;
  const { functions } = instantiate(compile(completed(text)));
  return functions.op as unknown as (...args: Element[]) => Element;
}

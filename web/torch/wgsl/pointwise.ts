// The shader of a pointwise row for one combination of dtypes and layout (csrc/ops/pointwise/pointwise_source.cpp).
import { operandDeclarations, PARAMS_BINDING, type Operand } from "./accessors";
import type { Kind, PointwiseRow } from "./data";
import { bitMask, convert, info, kindName, registerType, toWord, type ShaderDType } from "./dtypes";
import { completed } from "./library";

export const WORKGROUP = 256;

export interface PointwiseForm {
  /** The type the row is computed in. */
  compute: ShaderDType;
  /** The output, then the inputs. */
  dtypes: ShaderDType[];
  slots: number[];
  /** Which operands are numbers that come with the parameters. */
  numbers: boolean[];
  /** Dimensions that are walked. */
  rank: number;
  /** An output of elements smaller than a word is dense, so an invocation computes whole words. */
  packs: boolean;
}

/** The places of the parameters, in words. */
export class PointwiseParams {
  private readonly operands: number;

  constructor(
    operands: number,
    private readonly scalars: number,
    private readonly rank: number,
  ) {
    this.operands = operands;
  }

  offset(operand: number): number {
    return 1 + operand;
  }
  scalar(index: number): number {
    return 1 + this.operands + 2 * index;
  }
  number(operand: number): number {
    return this.scalar(this.scalars + operand);
  }
  size(dim: number): number {
    return this.scalar(this.scalars + this.operands) + dim;
  }
  stride(operand: number, dim: number): number {
    return this.size(this.rank * (1 + operand)) + dim;
  }
  words(): number {
    return this.size(this.rank * (1 + this.operands));
  }
}

const NAMES = ["out", "a", "b", "c", "d", "e"];

class Generator {
  private readonly kind: Kind;
  private readonly params: PointwiseParams;
  private readonly expression: string;

  constructor(
    label: string,
    private readonly row: PointwiseRow,
    private readonly form: PointwiseForm,
  ) {
    this.kind = info(form.compute).kind;
    this.params = new PointwiseParams(form.dtypes.length, row.scalars, form.rank);
    const expression = row.expressions[kindName(this.kind)];
    if (expression === undefined) {
      throw new Error(`${label}: not implemented for ${form.compute}`);
    }
    this.expression = expression;
  }

  generate(): string {
    const { form, params } = this;
    const vectors = Math.ceil(params.words() / 4);
    let text =
      `struct Params { w: array<vec4<u32>, ${vectors}> }\n` +
      `@group(0) @binding(${PARAMS_BINDING}) var<uniform> p: Params;\n`;
    text += this.operation() + operandDeclarations(pointwiseOperands(form)) + this.element();
    text +=
      `@compute @workgroup_size(${WORKGROUP})\n` +
      "fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,\n" +
      "        @builtin(local_invocation_index) lid: u32) {\n" +
      `  let id = (wid.y * groups.x + wid.x) * ${WORKGROUP}u + lid;\n`;
    text += form.packs
      ? this.packWords()
      : `  if (id >= ${this.word(0)}) { return; }\n  element(id);\n}\n`;
    return completed(text);
  }

  private word(i: number): string {
    return `p.w[${i >> 2}].${"xyzw"[i % 4]!}`;
  }

  private scalar(at: number): string {
    const pair = `vec2<u32>(${this.word(at)}, ${this.word(at + 1)})`;
    switch (this.kind) {
      case "f":
        return `bitcast<f32>(${this.word(at)})`;
      case "i":
        return `bitcast<i32>(${this.word(at)})`;
      case "r":
        return info(this.form.compute).bytes === 8 ? pair : this.word(at);
      default:
        return pair;
    }
  }

  private inputs(): number[] {
    return this.form.dtypes.map((_, k) => k).slice(1);
  }

  private resultKind(): Kind {
    return this.row.result === "bool" ? "b" : this.kind;
  }

  private operation(): string {
    const raw = this.kind === "r";
    const type = (k: number): string =>
      raw ? info(this.form.dtypes[k]!).wgsl : registerType(this.kind);
    const parameters = this.inputs().map((k) => `${NAMES[k]!}: ${type(k)}`);
    const result = raw ? type(0) : registerType(this.resultKind());
    let text = `fn op(${parameters.join(", ")}) -> ${result} {\n`;
    for (let s = 0; s < this.row.scalars; s++) {
      if (this.expression.includes(`s${s}`)) {
        text += `  let s${s} = ${this.scalar(this.params.scalar(s))};\n`;
      }
    }
    return `${text}  return ${this.expression};\n}\n`;
  }

  // Input k as the op wants it, from its register value.
  private converted(k: number, value: string): string {
    if (this.kind === "r") {
      return value;
    }
    const own = this.form.dtypes[k]!;
    const out = convert(info(own).kind, this.kind, value);
    // In a computation in float16, an input of a type with other values is first cast to it.
    const wider = own !== "f16" && own !== "bool" && !this.row.is_cast;
    return this.form.compute === "f16" && wider ? `round_f16_f(${out})` : out;
  }

  private toOutput(value: string): string {
    const out = this.form.dtypes[0]!;
    const result = this.resultKind();
    if (this.kind === "r") {
      return value;
    }
    if (out === "bool" && result !== "b") {
      return `i_from_b(${convert(result, "b", value)})`;
    }
    return convert(result, info(out).kind, value);
  }

  // fn element(index): computes one element; stores it, or returns its bits where words are packed.
  private element(): string {
    const { form, params } = this;
    const buffers = form.dtypes.map((_, k) => k).filter((k) => form.numbers[k] !== true);
    const walked = form.packs ? buffers.slice(1) : buffers;
    let text = `fn element(index: u32)${form.packs ? " -> u32" : ""} {\n  var rest = index;\n`;
    for (const k of walked) {
      text += `  var i${k} = ${this.word(params.offset(k))};\n`;
    }
    for (let d = 0; d < form.rank && walked.length > 0; d++) {
      if (d + 1 === form.rank) {
        text += `  let at${d} = rest;\n`;
      } else {
        const size = this.word(params.size(d));
        text += `  let next${d} = rest / ${size};\n  let at${d} = rest - next${d} * ${size};\n`;
        text += `  rest = next${d};\n`;
      }
      for (const k of walked) {
        text += `  i${k} += at${d} * ${this.word(params.stride(k, d))};\n`;
      }
    }
    const values = this.inputs().map((k) =>
      form.numbers[k] === true
        ? this.scalar(params.number(k))
        : this.converted(k, `load_${NAMES[k]!}(i${k})`),
    );
    const result = this.toOutput(`op(${values.join(", ")})`);
    return form.packs
      ? `${text}  return ${toWord(form.dtypes[0]!, result)};\n}\n`
      : `${text}  store_out(i0, ${result});\n}\n`;
  }

  // Each invocation owns one word of the output. Elements of the word outside of the tensor keep their bits.
  private packWords(): string {
    const { bytes } = info(this.form.dtypes[0]!);
    const lanes = 4 / bytes;
    const offset = this.word(this.params.offset(0));
    const count = this.word(0);
    const buffer = `b${this.form.slots[0]!}`;
    let text =
      `  let skipped = ${offset} % ${lanes}u;\n  let first = id * ${lanes}u - skipped;\n` +
      `  if (id * ${lanes}u >= ${count} + skipped) { return; }\n  var bits = 0u;\n  var mask = 0u;\n`;
    for (let lane = 0; lane < lanes; lane++) {
      const shift = `${lane * bytes * 8}u`;
      text +=
        `  if (first + ${lane}u < ${count}) { bits |= element(first + ${lane}u) << ${shift}; ` +
        `mask |= ${bitMask(bytes)} << ${shift}; }\n`;
    }
    return (
      `${text}  let at = ${offset} / ${lanes}u + id;\n` +
      `  if (mask != 0xffffffffu) { bits |= ${buffer}[at] & ~mask; }\n  ${buffer}[at] = bits;\n}\n`
    );
  }
}

/** The operands that lie in buffers. */
export function pointwiseOperands(form: PointwiseForm): Operand[] {
  return form.dtypes.flatMap((dtype, k) =>
    form.numbers[k] === true
      ? []
      : [
          {
            ...{ name: NAMES[k]!, dtype, slot: form.slots[k]! },
            ...{ writable: k === 0, ownsWords: k === 0 && form.packs },
          },
        ],
  );
}

export const pointwiseSource = (label: string, row: PointwiseRow, form: PointwiseForm): string =>
  new Generator(label, row, form).generate();

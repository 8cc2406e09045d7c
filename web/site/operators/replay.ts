// Runs a sample that tests/torch/record.py recorded from PyTorch, and compares.
import { nn, torch, NotImplementedError, Tensor, type DType } from "../../torch";

interface Encoded {
  dtype: DType;
  shape: number[];
  strides: number[];
  /** Base64 of the memory from the first element to the last. */
  data: string;
}

export interface Sample {
  input: unknown;
  args: unknown[];
  options: Record<string, unknown>;
  /** Null for one that may differ. */
  outputs: (Encoded | null)[];
  /** Of the outputs that have gradients. */
  cotangents?: Encoded[];
  gradients?: (Encoded | null)[];
  /** Which tensors of the arguments need a gradient, in order. */
  wants?: boolean[];
  /** What PyTorch says where it refuses the call, which then has no outputs. */
  raises?: string;
}

export interface Operator {
  /** Its name in PyTorch's op_db. */
  op: string;
  /** Its name here. */
  name: string;
  samples: Sample[];
}

export interface Outcome {
  /** `forward`: the results are equal, and the gradient is not implemented. */
  status: "equal" | "forward" | "differs" | "absent";
  /** The largest error of any element, relative to what is allowed: equal up to 1. */
  error: number;
  message: string;
}

/** What JavaScript says where a program goes on with arguments that nobody looked at. */
export const STUMBLES =
  /^Cannot (read|convert|mix|set|destructure)|is not (a function|iterable)|^Invalid (array|typed)|^(Object|Array)\./;

/** What an error may be: absolute, and relative to the value. */
const TOLERANCES: Partial<Record<DType, [number, number]>> = {
  float32: [1e-5, 2e-5],
  float16: [2e-3, 4e-3],
};

// Operators that sum many products, or whose gradient is a series.
const LOOSER =
  /addbmm|baddbmm|matmul|conv|norm|linear|attention|digamma|lgamma|zeta|igamma|polygamma|prod|grid_sample/;

function bytesOf(data: string): Uint8Array {
  const text = atob(data);
  return Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i));
}

const isEncoded = (value: object): value is Encoded => "strides" in value;

function decodeTensor(value: Encoded): Tensor {
  const bytes = bytesOf(value.data);
  const size = { float32: 4, float16: 2, int32: 4, int64: 8, bool: 1 }[value.dtype];
  const memory = torch.from_bytes(bytes, [bytes.length / size], value.dtype);
  return memory.viewed(value.shape, value.strides, 0);
}

// A value of the record, with its tensors also put into `found`.
function decode(value: unknown, found: Tensor[]): unknown {
  if (Array.isArray(value)) {
    return value.map((one) => decode(one, found));
  }
  if (typeof value !== "object" || value === null) {
    return value ?? undefined;
  }
  if (isEncoded(value)) {
    const tensor = decodeTensor(value);
    found.push(tensor);
    return tensor;
  }
  return "float" in value
    ? Number(String(value.float).replace("inf", "Infinity").replace("nan", "NaN"))
    : (value as { name: string }).name;
}

function results(value: unknown): Tensor[] {
  if (value instanceof Tensor) {
    return [value];
  }
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(results) : [];
}

async function compare(
  what: string,
  actual: Tensor,
  expected: Encoded,
  outcome: Outcome,
  factor: number,
): Promise<void> {
  const differs = (message: string): void => {
    outcome.status = "differs";
    outcome.message ||= `${what}: ${message}`;
  };
  if (actual.dtype !== expected.dtype) {
    differs(`dtype ${actual.dtype}, not ${expected.dtype}`);
    return;
  }
  if (actual.shape.join() !== expected.shape.join()) {
    differs(`shape [${actual.shape.join()}], not [${expected.shape.join()}]`);
    return;
  }
  // Of any size beside: no list would hold it.
  if (actual.numel() === 0) {
    return;
  }
  const [a, b] = [flat(await actual.tolist()), flat(await decodeTensor(expected).tolist())];
  const [absolute, relative] = TOLERANCES[expected.dtype] ?? [0, 0];
  a.forEach((x, i) => {
    const y = b[i]!;
    if (Object.is(x, y) || x === y) {
      return;
    }
    const error =
      Math.abs(Number(x) - Number(y)) / (factor * (absolute + relative * Math.abs(Number(y))));
    if (!(error <= 1)) {
      differs(`element ${i} is ${String(x)}, not ${String(y)}`);
    }
    outcome.error = Math.max(outcome.error, Number.isNaN(error) ? Infinity : error);
  });
}

type Plain = number | bigint | boolean;
const flat = (value: unknown): Plain[] =>
  Array.isArray(value) ? (value as unknown[]).flatMap(flat) : [value as Plain];

type Call = (...args: unknown[]) => unknown;

// A function of torch or of nn.functional, a method, or an attribute: T and mT.
function callOf(name: string): Call {
  const modules = [torch, nn.functional] as unknown as Record<string, Call>[];
  const found = modules.find((module) => name in module);
  return found !== undefined
    ? found[name]!
    : (self, ...args) => {
        const member = (self as Record<string, unknown>)[name];
        return typeof member === "function" ? (member as Call).apply(self, args) : member;
      };
}

/** Called when the results are compared, and before gradients are computed. */
type Between = (inputs: readonly Tensor[], outputs: readonly Tensor[]) => void;

/** Calls the operator on the sample's arguments. */
export async function replay(
  operator: Operator,
  sample: Sample,
  between?: Between,
): Promise<Outcome> {
  const outcome = await once(operator, sample, false, between);
  return outcome.status === "absent" && sample.wants !== undefined
    ? once(operator, sample, true)
    : outcome;
}

async function once(
  operator: Operator,
  sample: Sample,
  forward: boolean,
  between?: Between,
): Promise<Outcome> {
  const outcome: Outcome = { status: "equal", error: 0, message: "" };
  try {
    const factor = LOOSER.test(operator.op) ? 8 : 1;
    const tensors: Tensor[] = [];
    const input = decode(sample.input, tensors);
    const args = decode(sample.args, tensors) as unknown[];
    const options = Object.fromEntries(
      Object.entries(sample.options).map(([name, value]) => [name, decode(value, tensors)]),
    );
    sample.wants?.forEach((wanted, k) => {
      tensors[k]!.requires_grad_(wanted && !forward);
    });
    const cast = /^to_(\w+)$/.exec(operator.name);
    const call = cast === null ? callOf(operator.name) : (torch.to as Call);
    const rest = Object.keys(sample.options).length > 0 ? [...args, options] : args;
    const outs = results(await (cast === null ? call(input, ...rest) : call(input, cast[1])));
    if (sample.raises !== undefined) {
      // What only the GPU knows raises when values are read.
      await Promise.all(outs.map((out) => out.tolist()));
      outcome.status = "differs";
      outcome.message = `PyTorch refuses it: ${sample.raises}`;
      return outcome;
    }
    if (outs.length !== sample.outputs.length) {
      throw new Error(`${outs.length} results, not ${sample.outputs.length}`);
    }
    for (const [k, expected] of sample.outputs.entries()) {
      if (expected !== null) {
        await compare(`result ${k}`, outs[k]!, expected, outcome, factor);
      }
    }
    between?.(tensors, outs);
    if (forward) {
      outcome.status = outcome.status === "equal" ? "forward" : outcome.status;
      outcome.message ||= "the gradient is not implemented";
    } else if (sample.cotangents !== undefined) {
      const cotangents = sample.cotangents.map(decodeTensor);
      const wanted = tensors.filter((_, k) => sample.wants![k]!);
      const made = torch.autograd.grad(
        outs.filter((out) => out.requires_grad),
        wanted,
        cotangents,
        { allow_unused: true },
      );
      for (const [k, expected] of sample.gradients!.entries()) {
        const gradient = made[k];
        if (expected !== null && gradient !== undefined) {
          await compare(`gradient ${k}`, gradient, expected, outcome, factor);
          continue;
        }
        // Where nothing is used there may be zeros, or nothing.
        const only = expected === null ? gradient : decodeTensor(expected);
        if (only !== undefined && flat(await only.tolist()).some((x) => Number(x) !== 0)) {
          outcome.status = "differs";
          outcome.message ||= `gradient ${k}: there is ${expected === null ? "one" : "none"}`;
        }
      }
    }
  } catch (error) {
    if (sample.raises !== undefined && error instanceof Error && !STUMBLES.test(error.message)) {
      return outcome;
    }
    outcome.status = error instanceof NotImplementedError ? "absent" : "differs";
    outcome.message = error instanceof Error ? error.message : String(error);
  }
  return outcome;
}

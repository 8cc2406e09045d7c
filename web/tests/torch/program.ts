// Runs a program that record_programs.py recorded, and compares each step with PyTorch.
import { NotImplementedError, Slice, torch, Tensor, type DType } from "../../torch";
import { halfValue, view, type TypedArray } from "../../torch/dtype";
import { bytesFrom } from "./files";

interface Encoded {
  dtype: DType;
  shape: number[];
  /** Base64 of the elements in order. */
  data: string;
}

interface Expected extends Encoded {
  strides: number[];
  offset: number;
  /** What an error may be, absolute and relative; equal values without it. */
  tolerance?: [number, number];
  /** PyTorch may give something else: only dtype and shape count. */
  loose?: boolean;
  /** The value whose memory this one shares. */
  view_of?: number;
}

interface Call {
  op: string;
  args: unknown[];
  options: Record<string, unknown>;
}

interface Made extends Call {
  outputs: Expected[];
}

/** A call that changes value `target`; `whole` is then the memory of it, which is value `root`. */
interface Changed extends Call {
  target: number;
  root: number;
  whole: Expected;
}

interface Raised extends Call {
  /** PyTorch's message. */
  raises: string;
}

interface Given {
  input: Encoded;
  requires_grad: boolean;
}

export interface Program {
  steps: (Given | Made | Changed | Raised)[];
  backward?: {
    leaves: number[];
    ends: number[];
    weights: Encoded[];
    gradients: ((Encoded & { tolerance: [number, number] }) | null)[];
  };
}

const arrayOf = (one: Encoded): TypedArray => view(bytesFrom(one.data).buffer, one.dtype);

const made = (one: Encoded): Tensor => torch.from_bytes(bytesFrom(one.data), one.shape, one.dtype);

// ---- Source text ----

const numberAt = (values: TypedArray, i: number, dtype: DType): number | bigint =>
  dtype === "float16" ? halfValue(Number(values[i])) : values[i]!;

function literalText(one: Encoded): string {
  const values = arrayOf(one);
  const text = (i: number): string =>
    one.dtype === "bool" ? String(values[i] !== 0) : String(numberAt(values, i, one.dtype));
  let at = 0;
  const nest = (d: number): string =>
    d === one.shape.length
      ? text(at++)
      : `[${Array.from({ length: one.shape[d]! }, () => nest(d + 1)).join(", ")}]`;
  return `torch.tensor(${nest(0)}, { dtype: "${one.dtype}" })`;
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) {
    return `[${value.map(textOf).join(", ")}]`;
  }
  if (typeof value !== "object" || value === null) {
    return value === null ? "undefined" : JSON.stringify(value);
  }
  if ("v" in value) {
    return `v${String(value.v)}`;
  }
  if ("literal" in value) {
    return literalText(value.literal as Encoded);
  }
  if ("slice" in value) {
    return `new Slice(${(value.slice as unknown[]).map((one) => one ?? "undefined").join(", ")})`;
  }
  if ("float" in value) {
    return String(value.float);
  }
  return "dtype" in value ? JSON.stringify(value.dtype) : JSON.stringify(value);
}

const isMethod = (op: string): boolean => op.endsWith("_");

function callText({ op, args, options }: Call): string {
  const given = args.map((one) => (one === null && op === "at" ? "null" : textOf(one)));
  const named = Object.entries(options).map(([name, value]) => `${name}: ${textOf(value)}`);
  if (named.length > 0) {
    given.push(`{ ${named.join(", ")} }`);
  }
  const self = isMethod(op) ? given.shift()! : "torch";
  return `${self}.${op}(${given.join(", ")})`;
}

/** The program in TypeScript, a line a step. */
export function sourceOf(program: Program): string[] {
  let count = 0;
  return program.steps.map((step) => {
    if ("input" in step) {
      const grad = step.requires_grad ? ".requires_grad_()" : "";
      return `const v${count++} = ${literalText(step.input)}${grad};`;
    }
    if (!("outputs" in step)) {
      return `${callText(step)};${"raises" in step ? ` // raises: ${step.raises}` : ""}`;
    }
    const names = step.outputs.map(() => `v${count++}`);
    return step.outputs.length === 1
      ? `const ${names[0]!} = ${callText(step)};`
      : `const [${names.join(", ")}] = Object.values(${callText(step)});`;
  });
}

/** What the program does, in short: the names of its operators. */
export const titleOf = (program: Program): string =>
  program.steps.flatMap((step) => ("op" in step ? [step.op] : [])).join(" ");

// ---- Running ----

function argument(value: unknown, values: readonly Tensor[]): unknown {
  if (Array.isArray(value)) {
    return value.map((one) => argument(one, values) ?? undefined);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  if ("v" in value) {
    return values[value.v as number];
  }
  if ("literal" in value) {
    return made(value.literal as Encoded);
  }
  if ("slice" in value) {
    const [start, end, step] = value.slice as (number | null)[];
    return new Slice(start ?? undefined, end ?? undefined, step ?? undefined);
  }
  return "float" in value ? Number(value.float) : (value as { dtype: DType }).dtype;
}

function call({ op, args, options }: Call, values: readonly Tensor[]): Tensor[] {
  // Python's None is null as an index, and undefined elsewhere.
  const given = args.map((one) => argument(one, values) ?? (op === "at" ? null : undefined));
  const named = Object.entries(options).map(([name, one]) => [name, argument(one, values)]);
  if (named.length > 0) {
    given.push(Object.fromEntries(named));
  }
  type Members = Record<string, (...args: unknown[]) => unknown>;
  return results(
    isMethod(op)
      ? (given[0] as Members)[op]!(...given.slice(1))
      : (torch as unknown as Members)[op]!(...given),
  );
}

function results(value: unknown): Tensor[] {
  if (value instanceof Tensor) {
    return [value];
  }
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(results) : [];
}

/** The first element that is not what it should be. */
function difference(actual: TypedArray, expected: Encoded, tolerance = [0, 0]): string | undefined {
  const wanted = arrayOf(expected);
  const [absolute, relative] = tolerance as [number, number];
  for (let i = 0; i < wanted.length; i++) {
    const [a, b] = [actual, wanted].map((all) => numberAt(all, i, expected.dtype));
    if (Object.is(a, b) || a === b) {
      continue;
    }
    if (!(Math.abs(Number(a) - Number(b)) <= absolute + relative * Math.abs(Number(b)))) {
      return `element ${i} is ${String(a)}, not ${String(b)}`;
    }
  }
  return undefined;
}

function layoutDifference(actual: Tensor, expected: Expected): string | undefined {
  // The step of a dimension of one element, and of a tensor without elements, leads nowhere.
  const steps = (strides: readonly number[]): string =>
    expected.shape.includes(0) ? "" : strides.filter((_, d) => expected.shape[d] !== 1).join();
  if (actual.dtype !== expected.dtype) {
    return `its dtype is ${actual.dtype}, not ${expected.dtype}`;
  }
  if (actual.shape.join() !== expected.shape.join()) {
    return `its shape is [${actual.shape.join()}], not [${expected.shape.join()}]`;
  }
  if (steps(actual.strides) !== steps(expected.strides)) {
    return `its strides are [${actual.strides.join()}], not [${expected.strides.join()}]`;
  }
  if (actual.storage_offset !== expected.offset && !expected.shape.includes(0)) {
    return `it starts at ${actual.storage_offset}, not ${expected.offset}`;
  }
  return undefined;
}

// Takes PyTorch's values where the step rounded, so that an error is of one step and does not grow.
function takeOver(tensor: Tensor, expected: Expected): void {
  tensor.storage.runtime.upload(tensor.storage.block, bytesFrom(expected.data));
}

class Difference extends Error {}

function refusal(step: Raised, values: readonly Tensor[]): string | undefined {
  try {
    call(step, values);
  } catch (error) {
    const named = error instanceof RangeError || (error as Error).name === "RuntimeError";
    const missing =
      error instanceof NotImplementedError && /_cpu|not implemented/.test(step.raises);
    return named || missing ? undefined : `it raises ${String(error)}, not: ${step.raises}`;
  }
  return `it does not raise: ${step.raises}`;
}

/** Runs a program. The first difference is an error with the step's place and the program so far. */
export async function runProgram(program: Program): Promise<void> {
  const values: Tensor[] = [];
  const checks: Promise<string | undefined>[] = [];
  const places: number[] = [];
  const check = (
    place: number,
    what: string,
    tensor: Tensor,
    expected: Encoded,
    tolerance?: [number, number],
  ): void => {
    places.push(place);
    // The copy to read from is recorded at once, so that what follows cannot change it.
    checks.push(
      tensor.data().then((data) => {
        const found = difference(data, expected, tolerance);
        return found && `${what}: ${found}`;
      }),
    );
  };
  const fail = (place: number, message: string): never => {
    const source = sourceOf(program).slice(0, place + 1);
    throw new Difference(`step ${place}: ${message}\n${source.join("\n")}`);
  };
  program.steps.forEach((step, place) => {
    try {
      const wrong = runStep(step, values, (...rest) => {
        check(place, ...rest);
      });
      if (wrong !== undefined) {
        fail(place, wrong);
      }
    } catch (error) {
      if (error instanceof Difference) {
        throw error;
      }
      fail(place, String(error));
    }
  });
  const last = program.steps.length - 1;
  if (program.backward !== undefined) {
    const { leaves, ends, weights, gradients } = program.backward;
    let found: (Tensor | undefined)[] = [];
    try {
      found = torch.autograd.grad(
        ends.map((k) => values[k]!),
        leaves.map((k) => values[k]!),
        weights.map(made),
        { allow_unused: true },
      );
    } catch (error) {
      fail(last, `gradients of v${ends.join(", v")}: ${String(error)}`);
    }
    gradients.forEach((expected, k) => {
      const name = `gradient of v${leaves[k]!} from v${ends.join(", v")}`;
      const gradient = found[k];
      // PyTorch may give zeros where nothing is used, or nothing.
      if (expected === null || gradient === undefined) {
        if (expected !== null && arrayOf(expected).some((x) => Number(x) !== 0)) {
          fail(last, `${name}: there is none`);
        }
        return;
      }
      if (gradient.shape.join() !== expected.shape.join() || gradient.dtype !== expected.dtype) {
        fail(last, `${name}: ${gradient.toString()}, not of shape [${expected.shape.join()}]`);
      }
      check(last, name, gradient, expected, expected.tolerance);
    });
  }
  for (const [k, found] of (await Promise.all(checks)).entries()) {
    if (found !== undefined) {
      fail(places[k]!, found);
    }
  }
}

type Check = (
  what: string,
  tensor: Tensor,
  expected: Encoded,
  tolerance?: [number, number],
) => void;

function runStep(
  step: Program["steps"][number],
  values: Tensor[],
  check: Check,
): string | undefined {
  if ("input" in step) {
    const tensor = made(step.input);
    values.push(step.requires_grad ? tensor.requires_grad_() : tensor);
    return undefined;
  }
  if ("raises" in step) {
    return refusal(step, values);
  }
  const outs = call(step, values);
  if ("whole" in step) {
    const root = values[step.root]!;
    const target = values[step.target]!;
    if (outs[0]!.storage !== target.storage) {
      return "the result is not the tensor itself";
    }
    check(`v${step.root}`, root, step.whole, step.whole.tolerance);
    if (step.whole.tolerance !== undefined) {
      takeOver(root, step.whole);
    }
    return undefined;
  }
  if (outs.length !== step.outputs.length) {
    return `${outs.length} results, not ${step.outputs.length}`;
  }
  const first = values.length;
  for (const [k, expected] of step.outputs.entries()) {
    const out = outs[k]!;
    const name = `v${first + k}`;
    values.push(out);
    const wrong = layoutDifference(out, expected);
    if (wrong !== undefined) {
      return `${name}: ${wrong}`;
    }
    const shares = values.findIndex(({ storage }) => storage === out.storage);
    if (out.numel() > 0 && shares !== (expected.view_of ?? first + k)) {
      return `${name} has the memory of v${shares}, not of v${expected.view_of ?? first + k}`;
    }
    if (expected.loose !== true) {
      check(name, out, expected, expected.tolerance);
    }
    if (expected.tolerance !== undefined || expected.loose === true) {
      takeOver(out, expected);
    }
  }
  return undefined;
}

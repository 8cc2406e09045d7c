/** What a graph file says, as docs/graph-format.md specifies it. Parsing checks types, unknown
 * members and the ranges of numbers; check.ts checks that members agree with each other. */

import { type DType, isDType } from "./dtypes";
import { quote, refuse } from "./errors";
import { type Expression, parseExpression } from "./expressions";
import { type Json, type JsonObject, parseJson } from "./json";

/** Keys of the metadata of the safetensors file. */
export const VERSION_KEY = "torch_webgpu.graph";
export const PROGRAM_KEY = "torch_webgpu.program";
const VERSIONS = ["1", "2"];

/** The name of the function of a file of version 1, which has one without a name. */
export const ONLY_FUNCTION = "run";

export interface Dimension {
  min: number;
  max: number;
}

export type NumberType = "u32" | "i32" | "f32" | "u64";

export interface NumberSpec {
  type: NumberType;
  value: number | string;
  step?: string;
  input?: boolean;
}

export interface Buffer {
  bytes: number;
  entry?: string;
}

export interface View {
  dtype: DType;
  shape: Expression[];
  buffer?: number;
  offset?: number;
  entry?: string;
  optional?: boolean;
}

export interface Shader {
  label: string;
  wgsl: string;
  entry: string;
  buffers: number;
  writes: number[];
  reports?: boolean;
  constants?: Map<string, number>;
}

export interface Scratch {
  bytes: number;
  first: number;
  last: number;
  slot?: number;
  within?: number;
}

/** Buffer, offset, bytes. */
export type Range = [number, number, number];

export interface Dispatch {
  do: "dispatch";
  shader: number;
  bind: Range[];
  grid: [Expression, Expression, Expression];
  words: Expression[];
}

export interface Copy {
  do: "copy";
  source: [number, number];
  target: [number, number];
  bytes: number;
}

export interface Clear {
  do: "clear";
  target: Range;
}

export type Command = Dispatch | Copy | Clear;

export interface Requirements {
  features?: string[];
  limits?: Map<string, number>;
  subgroup_size?: [number, number];
  language_features?: string[];
  /** Whether the adapter must be one that computes on cores of a CPU. */
  software?: boolean;
}

export interface Variant {
  requires: Requirements;
  scratch: Scratch[];
  commands: Command[];
}

/** A program that shares the buffers with the others of its file. */
export interface GraphFunction {
  inputs: Map<string, View>;
  outputs: Map<string, View>;
  variants: Variant[];
  /** What a replay adds to numbers, as decimal digits. */
  steps: Map<string, string>;
}

/** A state dict. */
export type Tree =
  | { kind: "tensor"; view: View }
  | { kind: "dict"; items: [string | number | bigint, Tree][] }
  | { kind: "list" | "tuple"; items: Tree[] }
  | { kind: "value"; value: string | number | bigint | boolean | null }
  | { kind: "float"; text: string };

export interface Program {
  producer: string;
  buffers: Buffer[];
  shaders: Shader[];
  functions: Map<string, GraphFunction>;
  dimensions: Map<string, Dimension>;
  numbers: Map<string, NumberSpec>;
  state: Map<string, Tree>;
  messages: Map<string, [string, string]>;
}

// ---- Parsers: each takes a value and the place of it, for errors.

type Parse<T> = (value: Json, where: string) => T;

function mismatch(value: Json, where: string, wanted: string): never {
  refuse(`${where} must be ${wanted}, not ${quote(value)}`);
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const integer =
  (least: number, most = Number.MAX_SAFE_INTEGER): Parse<number> =>
  (value, where) =>
    typeof value === "number" && Number.isInteger(value) && value >= least && value <= most
      ? value
      : mismatch(value, where, `an integer from ${least} to ${most}`);

const count = integer(0);

const text: Parse<string> = (value, where) =>
  typeof value === "string" ? value : mismatch(value, where, "text");

const truth: Parse<boolean> = (value, where) =>
  typeof value === "boolean" ? value : mismatch(value, where, "true or false");

const real: Parse<number> = (value, where) =>
  (typeof value === "number" || typeof value === "bigint") && Number.isFinite(Number(value))
    ? Number(value)
    : mismatch(value, where, "a finite number");

const expression: Parse<Expression> = (value, where) => parseExpression(value, where);

const list =
  <T>(item: Parse<T>, most = Infinity): Parse<T[]> =>
  (value, where) =>
    Array.isArray(value) && value.length <= most
      ? value.map((part, k) => item(part, `${where}[${k}]`))
      : mismatch(value, where, most < Infinity ? `a list of at most ${most}` : "a list");

const tuple =
  <T extends unknown[]>(...items: { [K in keyof T]: Parse<T[K]> }): Parse<T> =>
  (value, where) =>
    Array.isArray(value) && value.length === items.length
      ? (items.map((item, k) => item(value[k]!, `${where}[${k}]`)) as T)
      : mismatch(value, where, `a list of ${items.length}`);

const dict =
  <T>(item: Parse<T>): Parse<Map<string, T>> =>
  (value, where) =>
    isObject(value)
      ? new Map(Object.entries(value).map(([name, part]) => [name, item(part, `${where}.${name}`)]))
      : mismatch(value, where, "an object");

type Parsers = Record<string, Parse<unknown>>;
type Parsed<P> = { [K in keyof P]: P[K] extends Parse<infer T> ? T : never };

const struct =
  <R extends Parsers, O extends Parsers>(
    required: R,
    optional: O,
  ): Parse<Parsed<R> & Partial<Parsed<O>>> =>
  (value, where) => {
    if (!isObject(value)) {
      return mismatch(value, where, "an object");
    }
    const result: Record<string, unknown> = {};
    for (const [name, part] of Object.entries(value)) {
      const parse = Object.hasOwn(required, name)
        ? required[name]!
        : Object.hasOwn(optional, name)
          ? optional[name]!
          : refuse(`${where} has an unknown member ${quote(name)}`);
      result[name] = parse(part, `${where}.${name}`);
    }
    for (const name of Object.keys(required)) {
      if (!(name in result)) {
        refuse(`${where} has no ${quote(name)}`);
      }
    }
    return result as Parsed<R> & Partial<Parsed<O>>;
  };

const oneOf =
  <T extends string>(...choices: T[]): Parse<T> =>
  (value, where) =>
    choices.includes(value as T)
      ? (value as T)
      : mismatch(value, where, `one of ${choices.join(", ")}`);

const dtype: Parse<DType> = (value, where) =>
  typeof value === "string" && isDType(value) ? value : mismatch(value, where, "a dtype");

const digits: Parse<string> = (value, where) =>
  typeof value === "string" && /^\d{1,20}$/.test(value) && BigInt(value) < 1n << 64n
    ? value
    : mismatch(value, where, "text of the digits of a number below 2^64");

const dimension: Parse<Dimension> = struct({ min: integer(1), max: integer(1) }, {});

const MOST_DIMENSIONS = 64; // of PyTorch
const place = {
  buffer: count,
  offset: count,
  entry: text,
};
const viewRequired = { dtype, shape: list(expression, MOST_DIMENSIONS) };
const view: Parse<View> = struct(viewRequired, place);
const viewWithOptional: Parse<View> = struct(viewRequired, { ...place, optional: truth });

const shader: Parse<Shader> = struct(
  { label: text, wgsl: text, entry: text, buffers: integer(0, 16), writes: list(count) },
  { reports: truth, constants: dict(real) },
);

const buffer: Parse<Buffer> = struct({ bytes: count }, { entry: text });

const scratch: Parse<Scratch> = struct(
  { bytes: count, first: count, last: count },
  { slot: count, within: count },
);

const range: Parse<Range> = tuple<Range>(count, count, count);
const start: Parse<[number, number]> = tuple<[number, number]>(count, count);

const dispatch: Parse<Dispatch> = struct(
  {
    do: oneOf<"dispatch">("dispatch"),
    shader: count,
    bind: list(range),
    grid: tuple<[Expression, Expression, Expression]>(expression, expression, expression),
    words: list(expression, 256),
  },
  {},
);
const copy: Parse<Copy> = struct(
  { do: oneOf<"copy">("copy"), source: start, target: start, bytes: count },
  {},
);
const clear: Parse<Clear> = struct({ do: oneOf<"clear">("clear"), target: range }, {});

const command: Parse<Command> = (value, where) => {
  const kind = isObject(value) ? value["do"] : undefined;
  const parse = kind === "copy" ? copy : kind === "clear" ? clear : dispatch;
  return parse(value, where);
};

const requirements = {
  features: list(text),
  limits: dict(count),
  subgroup_size: tuple<[number, number]>(count, count),
};

const variant = (version: string): Parse<Variant> =>
  struct(
    {
      requires:
        version === "1"
          ? struct({}, requirements)
          : struct({}, { ...requirements, language_features: list(text), software: truth }),
      scratch: list(scratch),
      commands: list(command),
    },
    {},
  );

const DEEPEST_STATE = 64;

function tree(value: Json, where: string, depth = 0): Tree {
  const members = isObject(value) ? Object.entries(value) : [];
  if (members.length !== 1 || depth > DEEPEST_STATE) {
    return mismatch(value, where, "a state");
  }
  const [kind, part] = members[0]!;
  if (kind === "tensor") {
    return { kind, view: view(part, where) };
  }
  if (kind === "value") {
    const isWhole = typeof part !== "number" || Number.isInteger(part);
    if (typeof part !== "object" || part === null) {
      return isWhole ? { kind, value: part } : mismatch(value, where, "a state");
    }
  } else if (kind === "float" && typeof part === "string") {
    return { kind, text: part };
  } else if (kind === "list" || kind === "tuple") {
    return { kind, items: list((item, at) => tree(item, at, depth + 1))(part, where) };
  } else if (kind === "dict") {
    const key: Parse<string | number | bigint> = (name, at) =>
      typeof name === "string" || typeof name === "bigint" ? name : integer(-(2 ** 53))(name, at);
    const item: Parse<Tree> = (inner, at) => tree(inner, at, depth + 1);
    return { kind, items: list(tuple<[string | number | bigint, Tree]>(key, item))(part, where) };
  }
  return mismatch(value, where, "a state");
}

const number = (version: string): Parse<NumberSpec> => {
  const required = {
    type: oneOf<NumberType>("u32", "i32", "f32", "u64"),
    value: (value: Json, where: string) =>
      typeof value === "string" ? digits(value, where) : real(value, where),
  };
  return version === "1"
    ? struct(required, { step: digits, input: truth })
    : struct(required, { input: truth });
};

const common = { producer: text, buffers: list(buffer), shaders: list(shader) };
const commonOptional = (version: string) => ({
  dimensions: dict(dimension),
  numbers: dict(number(version)),
  state: dict<Tree>((value, where) => tree(value, where)),
  messages: dict<[string, string]>(tuple<[string, string]>(text, text)),
});
const functionOf = (version: string) => ({
  inputs: dict(version === "1" ? view : viewWithOptional),
  outputs: dict(view),
  variants: list(variant(version)),
});

/** The program of a file, from the metadata of its header. */
export function parseProgram(metadata: ReadonlyMap<string, string>): Program {
  const version = metadata.get(VERSION_KEY);
  if (version === undefined) {
    refuse("it has no program");
  }
  if (!VERSIONS.includes(version)) {
    refuse(
      `it has version ${quote(version)} of the format, and this is a reader of versions ` +
        VERSIONS.join(" and "),
    );
  }
  const json = parseJson(metadata.get(PROGRAM_KEY) ?? "");
  const optional = commonOptional(version);
  const nothing = {
    dimensions: new Map(),
    numbers: new Map(),
    state: new Map(),
    messages: new Map(),
  };
  if (version === "1") {
    const parsed = struct({ ...common, ...functionOf(version) }, optional)(json, "the program");
    const { inputs, outputs, variants, ...rest } = { ...nothing, ...parsed };
    const steps = new Map<string, string>();
    for (const [name, { step }] of rest.numbers) {
      if (step !== undefined) {
        steps.set(name, step);
      }
    }
    const functions = new Map([[ONLY_FUNCTION, { inputs, outputs, variants, steps }]]);
    return { ...rest, functions };
  }
  const one = struct(functionOf(version), { steps: dict(digits) });
  const parsed = struct({ ...common, functions: dict(one) }, optional)(json, "the program");
  const functions = new Map(
    [...parsed.functions].map(([name, f]) => [name, { ...f, steps: f.steps ?? new Map() }]),
  );
  return { ...nothing, ...parsed, functions };
}

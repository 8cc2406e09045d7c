/** Checks a program against itself and against a device, before anything runs. */

import { typeOf } from "./dtypes";
import { GraphFileError, quote, refuse } from "./errors";
import { addNames, evaluate, type Expression, type Values, word } from "./expressions";
import type {
  Command,
  Copy,
  Dispatch,
  Program,
  Range,
  Shader,
  Tree,
  Variant,
  View,
} from "./format";
import { bitsOf } from "./numbers";
import type { Header } from "./safetensors";

/** The limits that the commands of a program meet. */
export interface Limits {
  readonly maxBufferSize: number;
  readonly maxStorageBufferBindingSize: number;
  readonly maxComputeWorkgroupsPerDimension: number;
}

/** What WebGPU's storage bindings are aligned to where a variant says nothing. */
const DEFAULT_ALIGNMENT = 256;

/** Sizes, numbers and the like of a program that was checked. */
export interface Checked {
  /** Numbers as they start, and dimensions as large as they get. */
  readonly values: Map<string, bigint>;
}

/** Has `work` throw GraphFileError in place of RangeError, which expressions throw. */
function refusing<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof GraphFileError || !(error instanceof Error)) {
      throw error;
    }
    return refuse(`${where}: ${error.message}`);
  }
}

/** The sizes of a view's dimensions. Throws RangeError for one without a value, and for more
 * elements than can be counted. */
export function shapeOf(view: View, values: Values): number[] {
  const shape = view.shape.map((size) => evaluate(size, values));
  const product = shape.reduce((a, b) => a * (b > 1n ? b : 1n), 1n);
  if (product >= 1n << 53n) {
    throw new RangeError(`a tensor cannot have the shape [${shape.join(", ")}]`);
  }
  return shape.map(Number);
}

export function bytesOf(view: View, shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1) * typeOf(view.dtype).bytes;
}

/** Throws RangeError if the view leaves its buffer with these values. Returns its shape. */
export function checkPlace(program: Program, view: View, values: Values): number[] {
  const shape = shapeOf(view, values);
  if (view.buffer !== undefined) {
    const offset = view.offset ?? 0;
    const size = program.buffers[view.buffer]!.bytes;
    if (offset % 4 !== 0 || offset + bytesOf(view, shape) > size) {
      throw new RangeError(`a tensor does not lie in buffer ${view.buffer}`);
    }
  }
  return shape;
}

/** The tensors of the file that no buffer starts with. */
export function looseEntries(program: Program, header: Header): Set<string> {
  const loose = new Set(header.entries.keys());
  for (const buffer of program.buffers) {
    loose.delete(buffer.entry ?? "");
  }
  return loose;
}

function checkView(
  program: Program,
  header: Header,
  loose: ReadonlySet<string>,
  values: Values,
  view: View,
  where: string,
): void {
  if ((view.buffer === undefined) === (view.entry === undefined)) {
    refuse(`${where} is in no place, or in two`);
  }
  if (view.entry !== undefined) {
    const entry = loose.has(view.entry) ? header.entries.get(view.entry) : undefined;
    if (entry === undefined) {
      return refuse(`${where}: the file has no tensor ${quote(view.entry)}, or a buffer has it`);
    }
    const same =
      entry.dtype === view.dtype &&
      entry.shape.length === view.shape.length &&
      entry.shape.every((size, k) => view.shape[k] === BigInt(size));
    if (!same) {
      refuse(`${where}: the tensor ${quote(view.entry)} has another dtype or shape`);
    }
    return;
  }
  if (view.buffer! >= program.buffers.length) {
    refuse(`${where}: there is no buffer ${view.buffer}`);
  }
  refusing(where, () => checkPlace(program, view, values));
}

/** Calls `visit` for each tensor of a state, with the names that lead to it. */
export function visitTree(
  tree: Tree,
  path: string,
  visit: (view: View, path: string) => void,
): void {
  const inner = (key: string | number | bigint) => (path === "" ? `${key}` : `${path}.${key}`);
  if (tree.kind === "tensor") {
    visit(tree.view, path);
  } else if (tree.kind === "dict") {
    tree.items.forEach(([key, item]) => visitTree(item, inner(key), visit));
  } else if (tree.kind === "list" || tree.kind === "tuple") {
    tree.items.forEach((item, k) => visitTree(item, inner(k), visit));
  }
}

function checkNames(program: Program): void {
  for (const [name, graph] of program.functions) {
    const names = [...graph.inputs.keys(), ...program.numbers.keys(), ...program.dimensions.keys()];
    if (new Set(names).size !== names.length) {
      refuse(`inputs of ${quote(name)}, numbers and dimensions have names in common`);
    }
    for (const number of graph.steps.keys()) {
      if (program.numbers.get(number)?.type !== "u64") {
        refuse(`the number ${quote(number)} counts, and is no u64`);
      }
    }
  }
  for (const [name, { min, max }] of program.dimensions) {
    if (min > max) {
      refuse(`the dimension ${quote(name)} has no size`);
    }
  }
}

/** Checks all that no variant and no device matters for. */
export function checkProgram(program: Program, header: Header): Checked {
  checkNames(program);
  const values = new Map<string, bigint>();
  for (const [name, { type, value }] of program.numbers) {
    if ((type === "u64") !== (typeof value === "string")) {
      refuse(`the number ${quote(name)} is ${type}, and its value is ${quote(value)}`);
    }
    const given = typeof value === "string" ? BigInt(value) : value;
    values.set(
      name,
      refusing("numbers", () => bitsOf(type, given, quote(name))),
    );
  }
  for (const [name, { max }] of program.dimensions) {
    values.set(name, BigInt(max));
  }
  program.buffers.forEach(({ bytes, entry }, k) => {
    const tensor = entry === undefined ? undefined : header.entries.get(entry);
    if (entry !== undefined && tensor === undefined) {
      refuse(`the file has no tensor ${quote(entry)}`);
    }
    if (tensor !== undefined && tensor.end - tensor.begin > bytes) {
      refuse(`the tensor ${quote(entry)} is larger than buffer ${k}`);
    }
  });
  for (const shader of program.shaders) {
    if (shader.writes.some((binding) => binding >= shader.buffers)) {
      refuse(`the shader ${quote(shader.label)} writes a binding that it does not have`);
    }
  }
  const loose = looseEntries(program, header);
  const sized = new Map([...values].filter(([name]) => program.dimensions.has(name)));
  const check = (view: View, where: string) =>
    checkView(program, header, loose, sized, view, where);
  for (const [name, graph] of program.functions) {
    for (const views of [graph.inputs, graph.outputs]) {
      for (const [label, view] of views) {
        if (view.buffer === undefined) {
          refuse(`${quote(label)} of ${quote(name)} is in no buffer`);
        }
        check(view, `${quote(label)} of ${quote(name)}`);
      }
    }
    for (const [label, view] of graph.inputs) {
      for (const size of view.shape) {
        if (
          typeof size === "object" ||
          (typeof size === "string" && !program.dimensions.has(size))
        ) {
          refuse(`the input ${quote(label)} has a size that is no number and no dimension`);
        }
      }
    }
  }
  for (const [name, tree] of program.state) {
    visitTree(tree, name, check);
  }
  return { values };
}

// ---- Commands

/** The parts of buffers that a command names, and whether it writes each of them. */
function partsOf(command: Command, shaders: readonly Shader[]): [Range, boolean][] {
  if (command.do === "dispatch") {
    const writes = new Set(shaders[command.shader]?.writes);
    return command.bind.map((part, k) => [part, writes.has(k)]);
  }
  if (command.do === "clear") {
    return [[command.target, true]];
  }
  return [
    [[...command.source, command.bytes], false],
    [[...command.target, command.bytes], true],
  ];
}

/** The commands of a variant that was checked. Places are buffers of the program, then shared
 * memory for scratch buffers. */
export interface Plan {
  /** Bytes of the places for scratch buffers. */
  readonly scratch: number[];
  /** The place of each buffer that commands name. */
  readonly place: number[];
  readonly commands: readonly Command[];
  /** Which commands depend on numbers or dimensions. */
  readonly varies: boolean[];
  /** The buffers of the program that commands write. */
  readonly written: Set<number>;
}

function placeScratch(program: Program, variant: Variant): Pick<Plan, "scratch" | "place"> {
  const base = program.buffers.length;
  const place = program.buffers.map((_, k) => k);
  const scratch: number[] = [];
  const slots = new Map<number, number>();
  for (const { bytes, slot, within } of variant.scratch) {
    if (within !== undefined) {
      if (slot !== undefined || within >= base) {
        refuse("a scratch buffer has no place, or two");
      }
      if (bytes > program.buffers[within]!.bytes) {
        refuse("a scratch buffer is larger than the buffer that it lies in");
      }
      place.push(within);
      continue;
    }
    const known = slot === undefined ? undefined : slots.get(slot);
    const at = known ?? scratch.push(0) - 1;
    if (slot !== undefined) {
      slots.set(slot, at);
    }
    scratch[at] = Math.max(scratch[at]!, bytes);
    place.push(base + at);
  }
  return { scratch, place };
}

/** Checks that scratch buffers which share memory are used one after the other. */
function checkLifetimes(
  program: Program,
  inputs: ReadonlySet<number>,
  variant: Variant,
  place: readonly number[],
): void {
  const base = program.buffers.length;
  const firstUse = new Array<number>(base).fill(variant.commands.length);
  variant.commands.forEach((command, at) => {
    for (const [[buffer]] of partsOf(command, program.shaders)) {
      if (buffer >= base + variant.scratch.length) {
        refuse(`there is no buffer ${buffer}`);
      }
      if (buffer < base) {
        firstUse[buffer] = Math.min(firstUse[buffer]!, at);
      } else {
        const { first, last } = variant.scratch[buffer - base]!;
        if (at < first || at > last) {
          refuse("a scratch buffer is used outside of its lifetime");
        }
      }
    }
  });
  const free = new Map<number, number>(); // by place: the first command that may use it
  const order = variant.scratch
    .map((scratch, k) => ({ ...scratch, at: place[base + k]! }))
    .sort((a, b) => a.first - b.first);
  for (const { first, last, at } of order) {
    const isTaken =
      at < base &&
      (firstUse[at]! <= last || program.buffers[at]!.entry !== undefined || inputs.has(at));
    if (isTaken || last < first || (free.get(at) ?? 0) > first) {
      refuse("buffers that are in use at the same time share memory");
    }
    free.set(at, last + 1);
  }
}

function checkDispatch(
  program: Program,
  dispatch: Dispatch,
  place: readonly number[],
  alignment: number,
  limits: Limits,
): void {
  const shader = program.shaders[dispatch.shader];
  if (shader === undefined) {
    return refuse(`there is no shader ${dispatch.shader}`);
  }
  const what = `a dispatch of ${quote(shader.label)}`;
  if (dispatch.bind.length !== shader.buffers) {
    refuse(`${what} binds ${dispatch.bind.length} buffers, not ${shader.buffers}`);
  }
  const writes = new Set(shader.writes);
  dispatch.bind.forEach(([buffer, offset, bytes], k) => {
    if (offset % alignment !== 0) {
      refuse(`${what} binds at ${offset}, which is no multiple of ${alignment}`);
    }
    if (bytes === 0) {
      refuse(`${what} binds nothing`);
    }
    if (bytes > limits.maxStorageBufferBindingSize) {
      const most = limits.maxStorageBufferBindingSize;
      refuse(`${what} binds ${bytes} bytes, and the device allows ${most}`);
    }
    for (let other = 0; other < k; ++other) {
      const [buffer2, offset2, bytes2] = dispatch.bind[other]!;
      const overlap = offset < offset2 + bytes2 && offset2 < offset + bytes;
      if (
        place[buffer] === place[buffer2] &&
        (writes.has(k) !== writes.has(other) || (writes.has(k) && overlap))
      ) {
        refuse(`${what} writes a buffer that it binds twice`);
      }
    }
  });
}

function checkCopy(copy: Copy, place: readonly number[]): void {
  if (place[copy.source[0]] === place[copy.target[0]]) {
    refuse("a copy is within one buffer");
  }
}

export function checkRange(
  [buffer, offset, bytes]: Range,
  size: number,
  command: Command["do"],
): void {
  if (offset % 4 !== 0 || bytes % 4 !== 0 || offset + bytes > size) {
    refuse(`a ${command} names ${bytes} bytes at ${offset} of buffer ${buffer}, which has ${size}`);
  }
}

/** The grid of a dispatch. Throws RangeError if it has no value, or is larger than is allowed. */
export function gridOf(dispatch: Dispatch, values: Values, most: number): number[] {
  const grid = dispatch.grid.map((size) => word(size, values));
  for (const size of grid) {
    if (size > most) {
      throw new RangeError(`${size} workgroups in a dimension, and the device allows ${most}`);
    }
  }
  return grid;
}

/** Checks a variant for a device. */
export function checkVariant(
  program: Program,
  name: string,
  variant: Variant,
  values: Values,
  limits: Limits,
): Plan {
  const base = program.buffers.length;
  const { scratch, place } = placeScratch(program, variant);
  const largest = Math.max(0, ...scratch, ...program.buffers.map(({ bytes }) => bytes));
  if (largest > limits.maxBufferSize) {
    refuse(`it has a buffer of ${largest} bytes, and the device allows ${limits.maxBufferSize}`);
  }
  const inputs = new Set<number>();
  for (const graph of program.functions.values()) {
    graph.inputs.forEach(({ buffer }) => inputs.add(buffer!));
  }
  checkLifetimes(program, inputs, variant, place);
  const alignment =
    variant.requires.limits?.get("minStorageBufferOffsetAlignment") ?? DEFAULT_ALIGNMENT;
  const written = new Set<number>();
  const varies = variant.commands.map((command) => {
    for (const [part, writes] of partsOf(command, program.shaders)) {
      const [buffer] = part;
      const { bytes } = buffer < base ? program.buffers[buffer]! : variant.scratch[buffer - base]!;
      checkRange(part, bytes, command.do);
      if (writes && place[buffer]! < base) {
        written.add(place[buffer]!);
      }
    }
    if (command.do === "copy") {
      checkCopy(command, place);
    }
    if (command.do !== "dispatch") {
      return false;
    }
    checkDispatch(program, command, place, Math.max(alignment, 4), limits);
    const names = new Set<string>();
    [...command.grid, ...command.words].forEach((part: Expression) => addNames(part, names));
    refusing(`a command of ${quote(name)}`, () => {
      gridOf(command, values, limits.maxComputeWorkgroupsPerDimension);
      command.words.forEach((part) => word(part, values));
    });
    return names.size > 0;
  });
  return { scratch, place, commands: variant.commands, varies, written };
}

// Bindings, and the functions by which kernels read and write their operands (csrc/wgsl/kernel_source.cpp).
import { bitMask, bitShift, fromWord, info, toWord, wordIndex, type ShaderDType } from "./dtypes";

/** The binding of the parameters; storage buffers have the numbers of their slots. */
export const PARAMS_BINDING = 31;
/** The binding of the words that index checks report to. */
export const ERRORS_BINDING = 30;

export interface Operand {
  name: string;
  dtype: ShaderDType;
  /** The number of its storage binding. Operands in one buffer share it. */
  slot: number;
  writable: boolean;
  atomicAdd?: boolean;
  atomicUpdate?: boolean;
  /** Each invocation owns whole words of what it stores. */
  ownsWords?: boolean;
  storesNeighbours?: boolean;
  /** The kernel's own type of the elements. */
  element?: string;
}

interface Slot {
  writable: boolean;
  atomic: boolean;
  element: string;
}

function slotsOf(operands: readonly Operand[]): Slot[] {
  const slots: Slot[] = [];
  for (const operand of operands) {
    const slot = (slots[operand.slot] ??= { writable: false, atomic: false, element: "u32" });
    const narrow = info(operand.dtype).bytes < 4;
    slot.element = operand.element ?? slot.element;
    slot.writable ||= operand.writable;
    slot.atomic ||=
      operand.writable &&
      operand.ownsWords !== true &&
      operand.element === undefined &&
      (narrow || operand.atomicAdd === true || operand.atomicUpdate === true);
  }
  return slots;
}

const writes = (atomic: boolean, buffer: string, index: string, value: string): string =>
  atomic ? `atomicStore(&${buffer}[${index}], ${value});` : `${buffer}[${index}] = ${value};`;

function loadFunction({ name, dtype }: Operand, buffer: string, atomic: boolean): string {
  const read = (index: string): string =>
    atomic ? `atomicLoad(&${buffer}[${index}])` : `${buffer}[${index}]`;
  const { bytes } = info(dtype);
  let value: string;
  if (bytes < 4) {
    const word = read(wordIndex(bytes));
    value = fromWord(dtype, `((${word} >> (${bitShift(bytes)})) & ${bitMask(bytes)})`);
  } else if (bytes === 4) {
    value = fromWord(dtype, read("i"));
  } else {
    value = fromWord(dtype, `vec2<u32>(${read("i * 2u")}, ${read("i * 2u + 1u")})`);
  }
  return `fn load_${name}(i: u32) -> ${name}_t { return ${value}; }\n`;
}

function storeFunction({ name, dtype }: Operand, buffer: string, atomic: boolean): string {
  const { bytes } = info(dtype);
  let body: string;
  if (bytes < 4) {
    // Only one invocation writes each lane of the word, so clearing and setting it need not be one operation.
    body =
      `let shift = ${bitShift(bytes)}; let word = &${buffer}[${wordIndex(bytes)}]; ` +
      `atomicAnd(word, ~(${bitMask(bytes)} << shift)); atomicOr(word, (${toWord(dtype, "v")}) << shift);`;
  } else if (bytes === 4) {
    body = writes(atomic, buffer, "i", toWord(dtype, "v"));
  } else {
    body =
      writes(atomic, buffer, "i * 2u", "v[0]") +
      " " +
      writes(atomic, buffer, "i * 2u + 1u", "v[1]");
  }
  return `fn store_${name}(i: u32, v: ${name}_t) { ${body} }\n`;
}

function storeNeighboursFunction(operand: Operand, buffer: string, count: number): string {
  const { name, dtype } = operand;
  const { bytes } = info(dtype);
  const values = Array.from({ length: count }, (_, e) => `v${e}`);
  const parameters = values.map((value) => `, ${value}: ${name}_t`).join("");
  let body = "";
  if (operand.ownsWords === true && bytes < 4) {
    const perWord = 4 / bytes;
    for (let first = 0; first < count; first += perWord) {
      const lanes = values
        .slice(first, first + perWord)
        .map((value, lane) => `(${toWord(dtype, value)} << ${lane * 8 * bytes}u)`);
      body += `${buffer}[i / ${perWord}u + ${first / perWord}u] = ${lanes.join(" | ")}; `;
    }
  } else {
    body = values.map((value, e) => `store_${name}(i + ${e}u, ${value}); `).join("");
  }
  return `fn store${count}_${name}(i: u32${parameters}) { ${body}}\n`;
}

// WGSL has integer atomics only: tries to replace the word until no other invocation has changed it in between.
function swapLoop(word: string, fresh: string, before = ""): string {
  return (
    `let word = &${word}; var old = atomicLoad(word); loop { let fresh = ${fresh}; ` +
    `${before}let swap = atomicCompareExchangeWeak(word, old, fresh); ` +
    `if (swap.exchanged) { break; } old = swap.old_value; }`
  );
}

function atomicAddFunction({ name, dtype }: Operand, buffer: string): string {
  const { bytes } = info(dtype);
  let body: string;
  if (dtype === "i32") {
    body = `atomicAdd(&${buffer}[i], bitcast<u32>(v));`;
  } else if (dtype === "i64") {
    // The carries of all adders end up in the high word, whatever their order.
    body =
      `let old = atomicAdd(&${buffer}[i * 2u], v.x); ` +
      `let carry = select(0u, 1u, old + v.x < old); atomicAdd(&${buffer}[i * 2u + 1u], v.y + carry);`;
  } else if (bytes < 4) {
    const old = `((old >> shift) & ${bitMask(bytes)})`;
    const sum = toWord(dtype, `(${fromWord(dtype, old)} + v)`);
    const fresh = `(old & ~(${bitMask(bytes)} << shift)) | ((${sum}) << shift)`;
    body = `let shift = ${bitShift(bytes)}; ${swapLoop(`${buffer}[${wordIndex(bytes)}]`, fresh)}`;
  } else {
    body = swapLoop(`${buffer}[i]`, toWord(dtype, `(${fromWord(dtype, "old")} + v)`));
  }
  return `fn atomic_add_${name}(i: u32, v: ${name}_t) { ${body} }\n`;
}

function atomicUpdateFunction({ name, dtype }: Operand, buffer: string): string {
  const { bytes } = info(dtype);
  const narrow = bytes < 4;
  const old = narrow ? `((old >> shift) & ${bitMask(bytes)})` : "old";
  let fresh = toWord(dtype, `combine_${name}(${fromWord(dtype, old)}, v)`);
  if (narrow) {
    fresh = `(old & ~(${bitMask(bytes)} << shift)) | ((${fresh}) << shift)`;
  }
  const word = `${buffer}[${narrow ? wordIndex(bytes) : "i"}]`;
  const shift = narrow ? `let shift = ${bitShift(bytes)}; ` : "";
  const loop = swapLoop(word, fresh, "if (fresh == old) { break; } ");
  return `fn atomic_update_${name}(i: u32, v: ${name}_t) { ${shift}${loop} }\n`;
}

/** Which storage bindings a shader writes, by slot. */
export const writableSlots = (operands: readonly Operand[]): boolean[] =>
  slotsOf(operands).map((slot) => slot.writable);

/** The bindings of the operands, their register types and their accessors. */
export function operandDeclarations(operands: readonly Operand[]): string {
  const slots = slotsOf(operands);
  let text = slots
    .map(({ writable, atomic, element }, number) => {
      const mode = writable ? "read_write" : "read";
      const array = atomic ? "atomic<u32>" : element;
      return `@group(0) @binding(${number}) var<storage, ${mode}> b${number}: array<${array}>;\n`;
    })
    .join("");
  for (const operand of operands) {
    const { name, dtype, element, writable } = operand;
    const buffer = `b${operand.slot}`;
    const atomic = slots[operand.slot]!.atomic;
    if (element !== undefined) {
      text += writable
        ? `fn store_${name}(i: u32, v: ${element}) { ${buffer}[i] = v; }\n`
        : `fn load_${name}(i: u32) -> ${element} { return ${buffer}[i]; }\n`;
      continue;
    }
    text += `alias ${name}_t = ${info(dtype).wgsl};\n` + loadFunction(operand, buffer, atomic);
    const wordsOnly = operand.ownsWords === true && info(dtype).bytes < 4;
    if (writable && !wordsOnly) {
      text += storeFunction(operand, buffer, atomic);
    }
    if (operand.storesNeighbours === true) {
      for (const count of wordsOnly && info(dtype).bytes === 1 ? [4] : [2, 4]) {
        text += storeNeighboursFunction(operand, buffer, count);
      }
    }
    if (operand.atomicAdd === true) {
      text += atomicAddFunction(operand, buffer);
    }
    if (operand.atomicUpdate === true) {
      text += atomicUpdateFunction(operand, buffer);
    }
  }
  return text;
}

// The shader of a kernel in one form: constants, conditions, regions, accessors, library (csrc/wgsl/assemble.cpp).
import { operandDeclarations, type Operand } from "./accessors";
import { holdsCondition, resolveConditions } from "./conditions";
import type { KernelInfo, Kind } from "./data";
import { info, type ShaderDType } from "./dtypes";
import { completed } from "./library";

export interface FormOperand {
  dtype: ShaderDType;
  slot: number;
  ownsWords?: boolean;
}

export interface Form {
  consts: Record<string, number | boolean | string>;
  /** Present operands, by name. */
  operands: Record<string, FormOperand>;
  regions: Record<string, string>;
}

const kindNames: Record<Kind, string> = { f: "float", i: "int", l: "long", b: "bool", r: "raw" };

function nameHolds(kernel: KernelInfo, form: Form, name: string): boolean | number {
  for (const constant of kernel.consts) {
    const value = form.consts[constant.name]!;
    if (constant.name === name) {
      return typeof value === "string" ? constant.values.indexOf(value) : value;
    }
    if (constant.kind === "enum" && constant.values.includes(name)) {
      return value === name;
    }
  }
  const match = /^(has|owns|vectors)_(\w+)$/.exec(name);
  if (match !== null && kernel.operands.some((operand) => operand.name === match[2])) {
    const operand = form.operands[match[2]!];
    return match[1] === "has"
      ? operand !== undefined
      : match[1] === "owns" && operand?.ownsWords === true;
  }
  const typed = /^(\w+)_is_(\w+)$/.exec(name);
  if (typed !== null && kernel.operands.some((operand) => operand.name === typed[1])) {
    const operand = form.operands[typed[1]!];
    return (
      operand !== undefined &&
      (operand.dtype === typed[2] || kindNames[info(operand.dtype).kind] === typed[2])
    );
  }
  if (["subgroups", "native_f16", "is_complex"].includes(name)) {
    return false;
  }
  throw new Error(`a condition asks for ${name}, which nothing declares`);
}

function check(label: string, kernel: KernelInfo, form: Form): void {
  for (const operand of kernel.operands) {
    const given = form.operands[operand.name];
    if (given === undefined) {
      if (!operand.optional) {
        throw new Error(`${label}: operand ${operand.name} is missing`);
      }
      continue;
    }
    if (operand.element === "" && !operand.dtypes.includes(given.dtype)) {
      throw new Error(`${label}: not implemented for ${given.dtype} (operand ${operand.name})`);
    }
    const like = form.operands[operand.like];
    if (like !== undefined && like.dtype !== given.dtype) {
      throw new Error(`${label}: ${operand.name} and ${operand.like} have different dtypes`);
    }
    const akin = form.operands[operand.akin];
    if (akin !== undefined && info(akin.dtype).kind !== info(given.dtype).kind) {
      throw new Error(`${label}: ${operand.name} and ${operand.akin} are computed differently`);
    }
  }
  for (const name of Object.keys(form.operands)) {
    if (!kernel.operands.some((operand) => operand.name === name)) {
      throw new Error(`${label}: the kernel has no operand ${name}`);
    }
  }
  for (const constant of kernel.consts) {
    const value = form.consts[constant.name];
    const plain = typeof value === "boolean" ? Number(value) : value;
    if (plain === undefined || !constant.values.includes(plain)) {
      throw new Error(`${label}: constant ${constant.name} cannot be ${String(value)}`);
    }
  }
  for (const requirement of kernel.requirements) {
    if (!holdsCondition(requirement, (name) => nameHolds(kernel, form, name))) {
      throw new Error(`${label}: the kernel requires ${requirement}`);
    }
  }
}

function constants(kernel: KernelInfo, form: Form): string {
  return kernel.consts
    .map(({ name, kind, values }) => {
      const value = form.consts[name]!;
      const text =
        kind === "bool"
          ? String(value)
          : `${typeof value === "string" ? values.indexOf(value) : Number(value)}u`;
      return `const ${name} = ${text};\n`;
    })
    .join("");
}

function fillRegions(kernel: KernelInfo, form: Form): string {
  return kernel.text.replace(/\/\/ @region (\w+)[^\n]*/g, (_, name: string) => {
    const given = form.regions[name] ?? "";
    return given === "" ? (kernel.regionDefaults[name] ?? "") : given;
  });
}

/** The operands as the accessors take them. */
export function operandsOf(kernel: KernelInfo, form: Form): Operand[] {
  return kernel.operands.flatMap(({ name, access, element }) => {
    const given = form.operands[name];
    return given === undefined
      ? []
      : [
          {
            ...{ name, dtype: given.dtype, slot: given.slot },
            writable: access !== "in" && access !== "vectors",
            atomicAdd: access === "sum",
            atomicUpdate: access === "update",
            ownsWords: given.ownsWords ?? false,
            storesNeighbours: access === "words",
            ...(element === "" ? {} : { element }),
          },
        ];
  });
}

/** The complete WGSL of a kernel. Raises for a form that the kernel's file does not allow. */
export function assemble(label: string, kernel: KernelInfo, form: Form): string {
  check(label, kernel, form);
  const text = resolveConditions(
    fillRegions(kernel, form),
    (name) => nameHolds(kernel, form, name) !== false,
  );
  const operands = operandDeclarations(operandsOf(kernel, form));
  return completed(`${constants(kernel, form)}${text}\n${operands}`);
}

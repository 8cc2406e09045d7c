// WGSL to JavaScript, with WGSL's types and its arithmetic in 32 bits.
import * as R from "./runtime";
import {
  parse,
  type Expression,
  type FunctionTree,
  type GlobalTree,
  type ModuleTree,
  type Statement,
  type TypeName,
} from "./syntax";

type ScalarName = "f32" | "i32" | "u32" | "bool";

export type Type =
  | { is: ScalarName }
  // Of numbers without a type: they become what they meet.
  | { is: "int" | "float" | "void" }
  | { is: "vec"; count: number; of: Type }
  | { is: "array"; count: number | undefined; of: Type }
  | { is: "struct"; name: string; fields: { name: string; type: Type }[] }
  | { is: "pointer"; to: Type };

const F32: Type = { is: "f32" };
const I32: Type = { is: "i32" };
const U32: Type = { is: "u32" };
const BOOL: Type = { is: "bool" };
const VOID: Type = { is: "void" };
const SCALARS: Record<string, Type> = { f32: F32, i32: I32, u32: U32, bool: BOOL };
const EXCHANGED: Type = {
  ...{ is: "struct", name: "__atomic_compare_exchange_result" },
  fields: [
    { name: "old_value", type: U32 },
    { name: "exchanged", type: BOOL },
  ],
};

/** A compiled expression. */
interface Made {
  code: string;
  type: Type;
  /** Known when compiling. Numbers without a type always are. */
  constant?: number | boolean;
  /** It is memory: code that changes it to the value of some code. */
  set?: (value: string) => string;
  /** Memory of a scalar in a storage buffer. */
  pointer?: string;
  /** A name stands for it, or for what it is a part of. */
  kept?: boolean;
  /** A buffer's array. */
  buffer?: boolean;
}

interface Binding extends Made {
  readonly name: string;
}

export class Unsupported extends Error {
  override name = "Unsupported";
}

const unsupported = (what: string): never => {
  throw new Unsupported(what);
};

const isAbstract = (type: Type): boolean => type.is === "int" || type.is === "float";
const isComposite = (type: Type): boolean =>
  type.is === "vec" || type.is === "array" || type.is === "struct";

const textOf = (type: Type): string => {
  switch (type.is) {
    case "vec":
      return `vec${type.count}<${textOf(type.of)}>`;
    case "array":
      return `array<${textOf(type.of)}, ${String(type.count)}>`;
    case "struct":
      return type.name;
    case "pointer":
      return `ptr<${textOf(type.to)}>`;
    default:
      return type.is;
  }
};

const same = (a: Type, b: Type): boolean => textOf(a) === textOf(b);

function numberCode(value: number | boolean): string {
  if (typeof value === "boolean") {
    return String(value);
  }
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.startsWith("-") ? `(${text})` : text;
}

const constantOf = (value: number | boolean, type: Type): Made => ({
  ...{ code: numberCode(value), type, constant: value },
});

// What compiled functions are called in JavaScript, where names may be words of the language.
const jsName = (name: string): string => `$${name}`;

const COMPARISONS = ["==", "!=", "<", ">", "<=", ">="];

function scalarOperation(op: string, type: Type, a: string, b: string): string {
  const js: Record<string, string> = { "==": "===", "!=": "!==" };
  if (COMPARISONS.includes(op)) {
    return `(${a} ${js[op] ?? op} ${b})`;
  }
  if (type.is === "bool") {
    const logic: Record<string, string> = { "&": "&&", "|": "||", "^": "!==" };
    return `(${a} ${logic[op] ?? op} ${b})`;
  }
  if (type.is === "f32") {
    return "+-*/%".includes(op) ? `fround(${a} ${op} ${b})` : unsupported(`f32 ${op}`);
  }
  const unsigned = type.is === "u32";
  const fit = unsigned ? ">>> 0" : "| 0";
  switch (op) {
    case "*":
      return unsigned ? `(Math.imul(${a}, ${b}) >>> 0)` : `Math.imul(${a}, ${b})`;
    case "/":
      return `R.div${unsigned ? "U" : "I"}(${a}, ${b})`;
    case "%":
      return `R.mod${unsigned ? "U" : "I"}(${a}, ${b})`;
    case ">>":
      return `(${a} ${unsigned ? ">>>" : ">>"} ${b})`;
    case "+":
    case "-":
    case "&":
    case "|":
    case "^":
    case "<<":
      return `((${a} ${op} ${b}) ${fit})`;
    default:
      return unsupported(`${type.is} ${op}`);
  }
}

// Constants of numbers without a type are computed as JavaScript's doubles, which hold all that occur.
function fold(op: string, a: number, b: number, whole: boolean): number | boolean {
  switch (op) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return whole ? Math.trunc(a / b) : a / b;
    case "%":
      return a % b;
    case "<<":
      return a * 2 ** b;
    case ">>":
      return Math.floor(a / 2 ** b);
    case "&":
      return Number(BigInt(a) & BigInt(b));
    case "|":
      return Number(BigInt(a) | BigInt(b));
    case "==":
      return a === b;
    case "!=":
      return a !== b;
    case "<":
      return a < b;
    case ">":
      return a > b;
    case "<=":
      return a <= b;
    case ">=":
      return a >= b;
    default:
      return unsupported(`${op} of constants`);
  }
}

interface Signature {
  tree: FunctionTree;
  parameters: Type[];
  result: Type;
  waits: boolean;
}

// Builtins of floats, of one kind for all their arguments: code from the arguments' code.
const FLOAT_BUILTINS: Record<string, (...args: string[]) => string> = {
  abs: (x) => `Math.abs(${x})`,
  acos: (x) => `fround(Math.acos(${x}))`,
  asin: (x) => `fround(Math.asin(${x}))`,
  atan: (x) => `fround(Math.atan(${x}))`,
  ceil: (x) => `Math.ceil(${x})`,
  clamp: (x, a, b) => `R.clamp(${x}, ${a!}, ${b!})`,
  cos: (x) => `fround(Math.cos(${x}))`,
  exp: (x) => `fround(Math.exp(${x}))`,
  exp2: (x) => `R.exp2(${x})`,
  floor: (x) => `Math.floor(${x})`,
  fma: (a, b, c) => `fround(${a} * ${b!} + ${c!})`,
  fract: (x) => `fround(${x} - Math.floor(${x}))`,
  inverseSqrt: (x) => `R.inverseSqrt(${x})`,
  ldexp: (x, e) => `fround(${x} * 2 ** ${e!})`,
  log: (x) => `fround(Math.log(${x}))`,
  log2: (x) => `R.log2(${x})`,
  max: (a, b) => `R.max(${a}, ${b!})`,
  min: (a, b) => `R.min(${a}, ${b!})`,
  mix: (a, b, t) => `fround(fround(${a} * fround(1 - ${t!})) + fround(${b!} * ${t!}))`,
  pow: (a, b) => `fround(${a} ** ${b!})`,
  round: (x) => `R.round(${x})`,
  sign: (x) => `R.sign(${x})`,
  sin: (x) => `fround(Math.sin(${x}))`,
  sqrt: (x) => `fround(Math.sqrt(${x}))`,
  tanh: (x) => `fround(Math.tanh(${x}))`,
  trunc: (x) => `Math.trunc(${x})`,
};

const INTEGER_BUILTINS: Record<string, (...args: string[]) => string> = {
  abs: (x) => `(Math.abs(${x}) | 0)`,
  clamp: (x, a, b) => `R.clamp(${x}, ${a!}, ${b!})`,
  countLeadingZeros: (x) => `R.countLeadingZeros(${x})`,
  countOneBits: (x) => `R.countOneBits(${x})`,
  countTrailingZeros: (x) => `R.countTrailingZeros(${x})`,
  max: (a, b) => `R.max(${a}, ${b!})`,
  min: (a, b) => `R.min(${a}, ${b!})`,
  reverseBits: (x) => `R.reverseBits(${x})`,
  sign: (x) => `R.sign(${x})`,
};

const ATOMICS = ["Load", "Store", "Add", "Or", "And", "Max", "Min", "CompareExchangeWeak"].map(
  (name) => `atomic${name}`,
);

class Compiler {
  private readonly tree: ModuleTree;
  private readonly structs = new Map<string, Type>();
  private readonly aliases: Map<string, TypeName>;
  private readonly signatures = new Map<string, Signature>();
  private readonly globals = new Map<string, Binding>();
  private readonly waiting: Set<string>;
  /** Scopes of the function that is compiled, from the outermost. */
  private scopes: Map<string, Binding>[] = [];
  private result: Type = VOID;
  private waits = false;
  private names = 0;

  constructor(text: string) {
    this.tree = parse(text);
    this.aliases = new Map(this.tree.aliases.map(({ name, type }) => [name, type]));
    for (const { name, fields } of this.tree.structs) {
      // Fields may have the types of structs below.
      const made = { is: "struct" as const, name, fields: [] as { name: string; type: Type }[] };
      this.structs.set(name, made);
      fields.forEach((field) => made.fields.push({ name: field.name, type: VOID }));
    }
    for (const { name, fields } of this.tree.structs) {
      const made = this.structs.get(name)!;
      if (made.is === "struct") {
        fields.forEach((field, k) => {
          made.fields[k] = { name: field.name, type: this.type(field.type) };
        });
      }
    }
    this.waiting = this.functionsThatWait();
  }

  // Functions that reach a barrier: they become generators, so that an invocation can stop there.
  private functionsThatWait(): Set<string> {
    const found = new Set<string>();
    const bodies = this.tree.functions.map(({ name, body }) => [name, calls(body)] as const);
    for (let before = -1; before !== found.size;) {
      before = found.size;
      for (const [name, called] of bodies) {
        if (called.has("workgroupBarrier") || [...called].some((one) => found.has(one))) {
          found.add(name);
        }
      }
    }
    return found;
  }

  // ---- Types ----

  type({ name, of }: TypeName): Type {
    const scalar = SCALARS[name];
    if (scalar !== undefined) {
      return scalar;
    }
    const short = /^vec([234])([fiu])$/.exec(name);
    if (short !== null) {
      return { is: "vec", count: Number(short[1]), of: SCALARS[`${short[2]!}32`]! };
    }
    const vector = /^vec([234])$/.exec(name);
    if (vector !== null && of.length === 1) {
      return { is: "vec", count: Number(vector[1]), of: this.typeArgument(of[0]!) };
    }
    if (name === "array") {
      const count = of[1] === undefined ? undefined : this.size(of[1]);
      return { is: "array", count, of: this.typeArgument(of[0]!) };
    }
    if (name === "atomic") {
      return this.typeArgument(of[0]!);
    }
    if (name === "ptr") {
      return { is: "pointer", to: this.typeArgument(of[1]!) };
    }
    const alias = this.aliases.get(name);
    return alias !== undefined
      ? this.type(alias)
      : (this.structs.get(name) ?? unsupported(`the type ${name}`));
  }

  private typeArgument(given: TypeName | Expression): Type {
    return "is" in given ? unsupported("a value as a type") : this.type(given);
  }

  private size(given: TypeName | Expression): number {
    const value = "is" in given ? this.expression(given) : this.named(given.name);
    return typeof value.constant === "number"
      ? value.constant
      : unsupported("a size that is not known");
  }

  private zero(type: Type): string {
    switch (type.is) {
      case "bool":
        return "false";
      case "vec":
        return `[${new Array<string>(type.count).fill(this.zero(type.of)).join(", ")}]`;
      case "array":
        return `R.filled(${String(type.count)}, () => ${this.grouped(this.zero(type.of))})`;
      case "struct":
        return `{ ${type.fields.map((one) => `${one.name}: ${this.zero(one.type)}`).join(", ")} }`;
      default:
        return "0";
    }
  }

  private grouped(code: string): string {
    return code.startsWith("{") ? `(${code})` : code;
  }

  // ---- Names ----

  private named(name: string): Binding {
    for (const scope of this.scopes.toReversed()) {
      const found = scope.get(name);
      if (found !== undefined) {
        return found;
      }
    }
    const known = this.globals.get(name);
    if (known !== undefined) {
      return known;
    }
    const tree = this.tree.globals.find((one) => one.name === name);
    return tree === undefined ? unsupported(`the name ${name}`) : this.global(tree);
  }

  private global(tree: GlobalTree): Binding {
    const js = jsName(tree.name);
    let made: Binding;
    if (tree.kind === "const") {
      const value = this.expression(tree.value!);
      const typed = tree.type === undefined ? value : this.as(value, this.type(tree.type));
      made = { ...typed, name: tree.name };
    } else {
      const type =
        tree.type === undefined
          ? this.settled(this.expression(tree.value!)).type
          : this.type(tree.type);
      made = {
        name: tree.name,
        code: js,
        type,
        buffer: tree.space === "storage",
        set: (v) => `${js} = ${v}`,
      };
    }
    this.globals.set(tree.name, made);
    return made;
  }

  private declare(name: string, type: Type, writable: boolean): string {
    const js = `${jsName(name)}_${this.names++}`;
    const set = (value: string): string => `${js} = ${value}`;
    const made = { name, code: js, type, kept: true, ...(writable && { set }) };
    this.scopes.at(-1)!.set(name, made);
    return js;
  }

  // ---- Values ----

  /** The value as one of that type. */
  private as(value: Made, type: Type): Made {
    if (isAbstract(value.type) && (type.is === "f32" || type.is === "i32" || type.is === "u32")) {
      const number = Number(value.constant);
      return constantOf(type.is === "f32" ? Math.fround(number) : number, type);
    }
    if (!same(value.type, type)) {
      unsupported(`${textOf(value.type)} where ${textOf(type)} is wanted`);
    }
    return value;
  }

  /** A value with a type of its own: whole numbers without one are i32. */
  private settled(value: Made): Made {
    return isAbstract(value.type) ? this.as(value, value.type.is === "int" ? I32 : F32) : value;
  }

  // Memory keeps its own vectors, arrays and structs: a value that is stored is a copy.
  private own({ code, type, set, kept }: Made): string {
    return isComposite(type) && (set !== undefined || kept === true) ? `R.copy(${code})` : code;
  }

  // A function does not change its parameters, but variables that they come from may change.
  private argument({ code, type, set }: Made): string {
    return isComposite(type) && set !== undefined ? `R.copy(${code})` : code;
  }

  private pairOf(left: Made, right: Made): [Made, Made] {
    if (isAbstract(left.type) && isAbstract(right.type)) {
      return [left, right];
    }
    const scalarOf = (type: Type): Type => (type.is === "vec" ? type.of : type);
    return isAbstract(left.type)
      ? [this.as(left, scalarOf(right.type)), right]
      : isAbstract(right.type)
        ? [left, this.as(right, scalarOf(left.type))]
        : [left, right];
  }

  private binary(op: string, a: Made, b: Made): Made {
    if (op === "&&" || op === "||") {
      return { code: `(${a.code} ${op} ${b.code})`, type: BOOL };
    }
    const shift = op === "<<" || op === ">>";
    const [left, right] = shift
      ? [isAbstract(a.type) && !isAbstract(b.type) ? this.settled(a) : a, b]
      : this.pairOf(a, b);
    if (isAbstract(left.type)) {
      const whole = left.type.is === "int" && right.type.is === "int";
      const value = fold(op, Number(left.constant), Number(right.constant), whole);
      return constantOf(
        value,
        typeof value === "boolean" ? BOOL : whole ? left.type : { is: "float" },
      );
    }
    const compared = COMPARISONS.includes(op);
    const settled = shift ? this.settledShift(right) : right;
    if (left.type.is !== "vec" && settled.type.is !== "vec") {
      if (!shift && !same(left.type, settled.type)) {
        unsupported(`${textOf(left.type)} ${op} ${textOf(settled.type)}`);
      }
      const code = scalarOperation(op, left.type, left.code, settled.code);
      const made: Made = { code, type: compared ? BOOL : left.type };
      const [x, y] = [left.constant, settled.constant];
      if (
        typeof x === "number" &&
        typeof y === "number" &&
        left.type.is === "u32" &&
        "+-*/%".includes(op)
      ) {
        // Sizes of arrays are such constants.
        return constantOf((fold(op, x, y, true) as number) >>> 0, left.type);
      }
      return made;
    }
    const count =
      left.type.is === "vec" ? left.type.count : (settled.type as { count: number }).count;
    const of = left.type.is === "vec" ? left.type.of : left.type;
    const spread = (one: Made): string =>
      one.type.is === "vec" ? one.code : `R.splat(${one.code}, ${count})`;
    return {
      code: `R.zip(${spread(left)}, ${spread(settled)}, (x, y) => ${scalarOperation(op, of, "x", "y")})`,
      type: { is: "vec", count, of: compared ? BOOL : of },
    };
  }

  private settledShift(right: Made): Made {
    return isAbstract(right.type) ? this.as(right, U32) : right;
  }

  private unary(op: string, tree: Expression): Made {
    const value = this.expression(tree);
    if (op === "&") {
      // A pointer to memory of several values is that memory itself.
      if (isComposite(value.type)) {
        return { code: value.code, type: { is: "pointer", to: value.type } };
      }
      const set = value.set === undefined ? unsupported("& of a value") : value.set("v");
      const code = value.pointer ?? `{ get: () => ${value.code}, set: (v) => { ${set}; } }`;
      return { code, type: { is: "pointer", to: value.type } };
    }
    if (op === "*") {
      return this.pointed(value);
    }
    if (isAbstract(value.type)) {
      return op === "-"
        ? constantOf(-Number(value.constant), value.type)
        : unsupported(`${op} of a constant`);
    }
    const of = value.type.is === "vec" ? value.type.of : value.type;
    const one = (code: string): string => {
      switch (op) {
        case "-":
          return of.is === "f32" ? `(-${code})` : `((-${code}) | 0)`;
        case "~":
          return of.is === "u32" ? `((~${code}) >>> 0)` : `(~${code})`;
        default:
          return `(!${code})`;
      }
    };
    return value.type.is === "vec"
      ? { code: `R.map(${value.code}, (x) => ${one("x")})`, type: value.type }
      : { code: one(value.code), type: value.type };
  }

  private pointed(pointer: Made): Made {
    if (pointer.type.is !== "pointer") {
      return unsupported("* of a value");
    }
    const { to } = pointer.type;
    return isComposite(to)
      ? { code: pointer.code, type: to, set: (v) => `R.assign(${pointer.code}, ${v})` }
      : {
          ...{ code: `${pointer.code}.get()`, type: to, pointer: pointer.code },
          set: (v) => `${pointer.code}.set(${v})`,
        };
  }

  private member(tree: Expression, name: string): Made {
    let of = this.expression(tree);
    if (of.type.is === "pointer") {
      of = this.pointed(of);
    }
    if (of.type.is === "struct") {
      const field = of.type.fields.find((one) => one.name === name);
      if (field === undefined) {
        return unsupported(`${of.type.name}.${name}`);
      }
      const code = `${of.code}.${name}`;
      const kept = of.kept === true;
      return { code, type: field.type, kept, ...(of.set && { set: (v) => `${code} = ${v}` }) };
    }
    if (of.type.is !== "vec") {
      return unsupported(`${textOf(of.type)}.${name}`);
    }
    const places = [...name].map((letter) => "xyzw".indexOf(letter));
    if (places.length > 1) {
      const type: Type = { is: "vec", count: places.length, of: of.type.of };
      return { code: `R.pick(${of.code}, [${places.join(", ")}])`, type };
    }
    const code = `${of.code}[${places[0]!}]`;
    const writable = of.set !== undefined && of.buffer !== true;
    return { code, type: of.type.of, ...(writable && { set: (v) => `${code} = ${v}` }) };
  }

  private index(tree: Expression, place: Expression): Made {
    let of = this.expression(tree);
    if (of.type.is === "pointer") {
      of = this.pointed(of);
    }
    const at = this.settled(this.expression(place)).code;
    if (of.type.is !== "array" && of.type.is !== "vec") {
      return unsupported(`${textOf(of.type)}[]`);
    }
    const type = of.type.of;
    if (of.buffer === true) {
      if (type.is === "vec") {
        return {
          ...{ code: `R.loadVector(${of.code}, ${at}, ${type.count})`, type, buffer: true },
          set: (v) => `R.storeVector(${of.code}, ${at}, ${v})`,
        };
      }
      if (isComposite(type)) {
        return unsupported(`a buffer of ${textOf(type)}`);
      }
      return {
        ...{ code: `R.load(${of.code}, ${at})`, type, pointer: `R.at(${of.code}, ${at})` },
        set: (v) => `R.store(${of.code}, ${at}, ${v})`,
      };
    }
    const code = `${of.code}[R.place(${at}, ${String(of.type.count)})]`;
    return { code, type, kept: of.kept === true, ...(of.set && { set: (v) => `${code} = ${v}` }) };
  }

  expression(tree: Expression): Made {
    switch (tree.is) {
      case "number":
        return this.number(tree.text);
      case "bool":
        return constantOf(tree.value, BOOL);
      case "name":
        return this.named(tree.name);
      case "unary":
        return this.unary(tree.op, tree.of);
      case "binary":
        return this.binary(tree.op, this.expression(tree.left), this.expression(tree.right));
      case "member":
        return this.member(tree.of, tree.name);
      case "index":
        return this.index(tree.of, tree.at);
      case "call":
        return this.call(tree.callee, tree.args);
      case "type":
        return unsupported("a type as a value");
    }
  }

  private number(text: string): Made {
    const hex = /^0[xX]/.test(text);
    const suffix = /[iu]$/.exec(text)?.[0] ?? (hex ? undefined : /[fh]$/.exec(text)?.[0]);
    const value = Number(suffix === undefined ? text : text.slice(0, -1));
    switch (suffix) {
      case "u":
        return constantOf(value, U32);
      case "i":
        return constantOf(value, I32);
      case "f":
        return constantOf(Math.fround(value), F32);
      case "h":
        return unsupported("f16");
      default:
        return constantOf(value, { is: /[.eE]/.test(text) && !hex ? "float" : "int" });
    }
  }

  // ---- Calls ----

  private signature(name: string): Signature | undefined {
    let made = this.signatures.get(name);
    const tree =
      made === undefined ? this.tree.functions.find((one) => one.name === name) : undefined;
    if (tree !== undefined) {
      made = {
        ...{ tree, parameters: tree.parameters.map(({ type }) => this.type(type)) },
        result: tree.result === undefined ? VOID : this.type(tree.result),
        waits: this.waiting.has(name),
      };
      this.signatures.set(name, made);
    }
    return made;
  }

  private call(callee: TypeName, trees: readonly Expression[]): Made {
    const { name } = callee;
    const signature = this.signature(name);
    if (signature !== undefined) {
      const args = trees.map((tree, k) =>
        this.argument(this.as(this.expression(tree), signature.parameters[k]!)),
      );
      const code = `${jsName(name)}(${args.join(", ")})`;
      return { code: signature.waits ? `(yield* ${code})` : code, type: signature.result };
    }
    if (name === "workgroupBarrier") {
      return { code: "(yield)", type: VOID };
    }
    const args = trees.map((tree) => this.expression(tree));
    if (name === "bitcast") {
      return this.bitcast(this.typeArgument(callee.of[0]!), this.settled(args[0]!));
    }
    if (name === "select") {
      return this.select(args as [Made, Made, Made]);
    }
    if (name === "all" || name === "any") {
      const every = name === "all" ? "every" : "some";
      const [one] = args as [Made];
      return {
        code: one.type.is === "vec" ? `${one.code}.${every}((x) => x)` : one.code,
        type: BOOL,
      };
    }
    if (name === "dot") {
      const [a, b] = args as [Made, Made];
      const of = a.type.is === "vec" ? a.type.of : unsupported("dot of scalars");
      const product = scalarOperation("*", of, "x", "y");
      const sum = scalarOperation("+", of, "s", "x");
      const products = `R.zip(${a.code}, ${b.code}, (x, y) => ${product})`;
      return { code: `${products}.reduce((s, x) => ${sum})`, type: of };
    }
    if (ATOMICS.includes(name)) {
      const [pointer, ...values] = args as [Made, ...Made[]];
      const given = values.map((one) => this.as(one, U32).code);
      const type =
        name === "atomicStore" ? VOID : name === "atomicCompareExchangeWeak" ? EXCHANGED : U32;
      return { code: `R.${name}(${[pointer.code, ...given].join(", ")})`, type };
    }
    if (name in FLOAT_BUILTINS || name in INTEGER_BUILTINS) {
      return this.builtin(name, args);
    }
    return this.construct(callee, args);
  }

  private bitcast(to: Type, value: Made): Made {
    const [a, b] = [value.type, to].map((type) => (type.is === "vec" ? type.of : type)) as [
      Type,
      Type,
    ];
    const one = (x: string): string => {
      if (a.is === b.is) {
        return x;
      }
      if (a.is === "f32") {
        return b.is === "u32" ? `R.bitsOfF32(${x})` : `(R.bitsOfF32(${x}) | 0)`;
      }
      if (b.is === "f32") {
        return `R.f32OfBits(${x})`;
      }
      return b.is === "u32" ? `(${x} >>> 0)` : `(${x} | 0)`;
    };
    return {
      code: value.type.is === "vec" ? `R.map(${value.code}, (x) => ${one("x")})` : one(value.code),
      type: to,
    };
  }

  private select([no, yes, condition]: [Made, Made, Made]): Made {
    const [a, b] = this.pairOf(no, yes).map((one) => this.settled(one)) as [Made, Made];
    if (condition.type.is === "vec") {
      return {
        code: `R.zip3(${a.code}, ${b.code}, ${condition.code}, (x, y, c) => (c ? y : x))`,
        type: a.type,
      };
    }
    // Both are evaluated; neither has an effect.
    return { code: `(${condition.code} ? ${this.own(b)} : ${this.own(a)})`, type: a.type };
  }

  private builtin(name: string, given: Made[]): Made {
    const typed = given.find((one) => !isAbstract(one.type));
    let args = given;
    if (typed === undefined) {
      const float = given.some((one) => one.type.is === "float") || !(name in INTEGER_BUILTINS);
      args = given.map((one) => this.as(one, float ? F32 : I32));
    } else {
      const of = typed.type.is === "vec" ? typed.type.of : typed.type;
      args = given.map((one, k) =>
        name === "ldexp" && k === 1
          ? this.settled(one)
          : isAbstract(one.type)
            ? this.as(one, of)
            : one,
      );
    }
    const [{ type }] = args as [Made];
    const of = type.is === "vec" ? type.of : type;
    const make = (of.is === "f32" ? FLOAT_BUILTINS : INTEGER_BUILTINS)[name];
    if (make === undefined) {
      return unsupported(`${name}(${textOf(type)})`);
    }
    const fitted = (code: string): string =>
      of.is === "u32" && name === "abs" ? `(${code} >>> 0)` : code;
    if (type.is !== "vec") {
      return { code: fitted(make(...args.map((one) => one.code))), type };
    }
    const letters = ["x", "y", "z"].slice(0, args.length);
    const zip = ["R.map", "R.zip", "R.zip3"][args.length - 1]!;
    const spread = args.map((one) =>
      one.type.is === "vec" ? one.code : `R.splat(${one.code}, ${type.count})`,
    );
    return {
      code: `${zip}(${spread.join(", ")}, (${letters.join(", ")}) => ${fitted(make(...letters))})`,
      type,
    };
  }

  private converted(value: Made, type: Type): string {
    if (isAbstract(value.type)) {
      const to = type.is === "bool" ? I32 : type;
      const made = this.as(value, to);
      return type.is === "bool" ? `(${made.code} !== 0)` : made.code;
    }
    const from = value.type.is;
    const { code } = value;
    if (from === type.is) {
      return code;
    }
    switch (type.is) {
      case "bool":
        return `(${code} !== 0)`;
      case "f32":
        return from === "bool" ? `(${code} ? 1 : 0)` : `fround(${code})`;
      case "i32":
        return from === "f32" ? `R.i32OfF32(${code})` : `(${code} | 0)`;
      case "u32":
        return from === "f32" ? `R.u32OfF32(${code})` : `(${code} >>> 0)`;
      default:
        return unsupported(`${textOf(type)}(${from})`);
    }
  }

  private construct(callee: TypeName, args: Made[]): Made {
    const bare = /^vec([234])$/.exec(callee.name);
    let type: Type;
    if (bare !== null && callee.of.length === 0) {
      const typed =
        args.find((one) => !isAbstract(one.type)) ?? args.find((one) => one.type.is === "float");
      const first = this.settled(typed ?? args[0]!).type;
      type = { is: "vec", count: Number(bare[1]), of: first.is === "vec" ? first.of : first };
    } else if (callee.name === "array" && callee.of.length === 0) {
      type = { is: "array", count: args.length, of: this.settled(args[0]!).type };
    } else {
      type = this.type(callee);
    }
    if (args.length === 0) {
      return { code: this.zero(type), type };
    }
    switch (type.is) {
      case "vec": {
        const { of, count } = type;
        const parts = args.flatMap((one) => {
          if (one.type.is !== "vec") {
            return [this.converted(one, of)];
          }
          const part: Made = { code: "x", type: one.type.of };
          return [`...R.map(${one.code}, (x) => ${this.converted(part, of)})`];
        });
        const single = args.length === 1 && args[0]!.type.is !== "vec";
        return { code: single ? `R.splat(${parts[0]!}, ${count})` : `[${parts.join(", ")}]`, type };
      }
      case "array": {
        const { of } = type;
        return { code: `[${args.map((one) => this.own(this.as(one, of))).join(", ")}]`, type };
      }
      case "struct": {
        const parts = type.fields.map(
          (field, k) => `${field.name}: ${this.own(this.as(args[k]!, field.type))}`,
        );
        return { code: `({ ${parts.join(", ")} })`, type };
      }
      default:
        return { code: this.converted(args[0]!, type), type };
    }
  }

  // ---- Statements ----

  private block(body: readonly Statement[]): string {
    this.scopes.push(new Map());
    const code = body.map((one) => this.statement(one)).join("\n");
    this.scopes.pop();
    return `{\n${code}\n}`;
  }

  private condition(tree: Expression): string {
    return this.as(this.expression(tree), BOOL).code;
  }

  private statement(tree: Statement): string {
    switch (tree.is) {
      case "block":
        return this.block(tree.body);
      case "declare":
        return this.declaration(tree);
      case "assign":
        return `${this.assignment(tree)};`;
      case "call":
        return `${this.expression(tree.call).code};`;
      case "if": {
        const otherwise =
          tree.otherwise === undefined ? "" : ` else ${this.statement(tree.otherwise)}`;
        return `if (${this.condition(tree.condition)}) ${this.statement(tree.then)}${otherwise}`;
      }
      case "for": {
        this.scopes.push(new Map());
        const first = tree.first === undefined ? ";" : this.statement(tree.first);
        const condition = tree.condition === undefined ? "" : this.condition(tree.condition);
        const next = tree.next === undefined ? "" : this.statement(tree.next).replace(/;$/, "");
        const body = this.statement(tree.body);
        this.scopes.pop();
        return `for (${first} ${condition}; ${next}) ${body}`;
      }
      case "while":
        return `while (${this.condition(tree.condition)}) ${this.statement(tree.body)}`;
      case "loop":
        return tree.continuing.length > 0
          ? unsupported("continuing")
          : `for (;;) ${this.block(tree.body)}`;
      case "return":
        return tree.value === undefined
          ? "return;"
          : `return ${this.own(this.as(this.expression(tree.value), this.result))};`;
      default:
        return `${tree.is};`;
    }
  }

  private declaration(tree: Extract<Statement, { is: "declare" }>): string {
    if (tree.value === undefined) {
      const type = this.type(tree.type!);
      return `let ${this.declare(tree.name, type, true)} = ${this.zero(type)};`;
    }
    const given = this.expression(tree.value);
    if (tree.kind === "const") {
      const value = tree.type === undefined ? given : this.as(given, this.type(tree.type));
      this.scopes.at(-1)!.set(tree.name, { ...value, name: tree.name });
      return "";
    }
    const value =
      tree.type === undefined ? this.settled(given) : this.as(given, this.type(tree.type));
    const code = this.own(value);
    return `let ${this.declare(tree.name, value.type, tree.kind === "var")} = ${code};`;
  }

  private assignment({ op, target, value }: Extract<Statement, { is: "assign" }>): string {
    if (target.is === "name" && target.name === "_") {
      return this.expression(value).code;
    }
    const memory = this.expression(target);
    if (memory.set === undefined) {
      return unsupported("an assignment to a value");
    }
    const given = this.expression(value);
    const made =
      op === "" ? given : this.binary(op, { code: memory.code, type: memory.type }, given);
    return memory.set(this.own(this.as(made, memory.type)));
  }

  // ---- The module ----

  private function({ tree, parameters, result, waits }: Signature): string {
    this.scopes = [new Map()];
    this.result = result;
    this.waits = waits;
    const names = tree.parameters.map(({ name }, k) => this.declare(name, parameters[k]!, false));
    const body = this.block(tree.body);
    this.scopes = [];
    return `function${waits ? "*" : ""} ${jsName(tree.name)}(${names.join(", ")}) ${body}`;
  }

  module(): Compiled {
    const functions = this.tree.functions.map(({ name }) => this.function(this.signature(name)!));
    const entry = this.tree.functions.find(({ workgroup }) => workgroup !== undefined);
    const variables = this.tree.globals.filter(({ kind }) => kind === "var");
    const made = variables.map((tree) => ({ tree, binding: this.named(tree.name) }));
    const bound = made.filter(({ tree }) => tree.space === "storage" || tree.space === "uniform");
    const declared = made.map(({ tree, binding: { code, type } }) => {
      const value =
        tree.value === undefined ? undefined : this.as(this.expression(tree.value), type).code;
      const start = bound.some((one) => one.tree === tree)
        ? "undefined"
        : (value ?? this.zero(type));
      return { tree, code, start };
    });
    const shared = declared.filter(({ tree }) => tree.space === "workgroup");
    const own = declared.filter(
      ({ tree }) => tree.space === "private" && assigned(this.tree, tree.name),
    );
    if (own.length > 0 && entry !== undefined && this.waiting.has(entry.name)) {
      unsupported("private variables that change, with barriers");
    }
    const reset = (all: typeof declared): string =>
      all.map(({ code, start }) => `${code} = ${start};`).join(" ");
    const js = [
      `"use strict"; const { fround } = Math;`,
      ...declared.map(({ code, start }) => `let ${code} = ${start};`),
      ...functions,
      "return {",
      `bind: (values) => { ${bound.map(({ tree, binding }) => `${binding.code} = values[${JSON.stringify(tree.name)}];`).join(" ")} },`,
      `resetWorkgroup: () => { ${reset(shared)} },`,
      `resetInvocation: () => { ${reset(own)} },`,
      `functions: { ${this.tree.functions.map(({ name }) => `${name}: ${jsName(name)}`).join(", ")} },`,
      "};",
    ].join("\n");
    return {
      js,
      bindings: bound.map(({ tree, binding }) => ({
        ...{ name: tree.name, binding: tree.binding!, type: binding.type },
        uniform: tree.space === "uniform",
      })),
      entry:
        entry === undefined
          ? undefined
          : {
              name: entry.name,
              waits: this.waiting.has(entry.name),
              builtins: entry.parameters.map(({ builtin }) => builtin!),
              workgroup: [0, 1, 2].map((k) =>
                entry.workgroup![k] === undefined ? 1 : this.size(entry.workgroup![k]),
              ),
            },
    };
  }
}

// The names that statements call.
function calls(body: readonly Statement[]): Set<string> {
  const found = new Set<string>();
  JSON.stringify(body, (_, one: unknown) => {
    if (typeof one === "object" && one !== null && "callee" in one) {
      found.add((one.callee as TypeName).name);
    }
    return one;
  });
  return found;
}

function assigned(tree: ModuleTree, name: string): boolean {
  let found = false;
  JSON.stringify(tree.functions, (_, one: unknown) => {
    if (typeof one === "object" && one !== null && "target" in one) {
      let target = one.target as Expression;
      while (target.is === "index" || target.is === "member") {
        target = target.of;
      }
      found ||= target.is === "name" && target.name === name;
    }
    return one;
  });
  return found;
}

export interface Compiled {
  /** A function's body: it takes R, the runtime, and gives the module. */
  js: string;
  bindings: { name: string; binding: number; type: Type; uniform: boolean }[];
  entry: { name: string; waits: boolean; builtins: string[]; workgroup: number[] } | undefined;
}

export interface Module {
  bind: (values: Record<string, unknown>) => void;
  resetWorkgroup: () => void;
  resetInvocation: () => void;
  functions: Record<string, (...args: never[]) => unknown>;
}

/** Compiles WGSL; raises Unsupported for what it does not know. */
export const compile = (text: string): Compiled => new Compiler(text).module();

/** The functions and variables of a compiled module. */
export function instantiate({ js }: Compiled): Module {
  return (new Function("R", js) as (runtime: typeof R) => Module)(R);
}

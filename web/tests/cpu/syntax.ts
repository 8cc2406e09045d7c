// WGSL's grammar as far as the kernels, the rows and the function library use it: text to a tree.

export interface TypeName {
  name: string;
  /** Of vec2<u32>, array<f32, 4>, ptr<function, T>. */
  of: (TypeName | Expression)[];
}

export type Expression =
  | { is: "number"; text: string }
  | { is: "bool"; value: boolean }
  | { is: "name"; name: string }
  | { is: "type"; type: TypeName }
  | { is: "unary"; op: string; of: Expression }
  | { is: "binary"; op: string; left: Expression; right: Expression }
  | { is: "call"; callee: TypeName; args: Expression[] }
  | { is: "member"; of: Expression; name: string }
  | { is: "index"; of: Expression; at: Expression };

export type Statement =
  | { is: "block"; body: Statement[] }
  | {
      is: "declare";
      kind: "let" | "var" | "const";
      name: string;
      type?: TypeName;
      value?: Expression;
    }
  | { is: "assign"; op: string; target: Expression; value: Expression }
  | { is: "call"; call: Expression }
  | { is: "if"; condition: Expression; then: Statement; otherwise?: Statement }
  | { is: "for"; first?: Statement; condition?: Expression; next?: Statement; body: Statement }
  | { is: "while"; condition: Expression; body: Statement }
  | { is: "loop"; body: Statement[]; continuing: Statement[] }
  | { is: "return"; value?: Expression }
  | { is: "break" }
  | { is: "continue" };

export interface Parameter {
  name: string;
  type: TypeName;
  builtin?: string;
}

export interface FunctionTree {
  name: string;
  parameters: Parameter[];
  result?: TypeName;
  body: Statement[];
  /** Of an entry point: @workgroup_size. */
  workgroup?: Expression[];
}

export interface GlobalTree {
  kind: "const" | "var";
  space: string;
  binding?: number;
  name: string;
  type?: TypeName;
  value?: Expression;
}

export interface ModuleTree {
  functions: FunctionTree[];
  globals: GlobalTree[];
  structs: { name: string; fields: { name: string; type: TypeName }[] }[];
  aliases: { name: string; type: TypeName }[];
}

const TOKEN =
  /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|(0[xX][0-9a-fA-F]+[iu]?|(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fh]?|\d+[eE][+-]?\d+[fh]?|\d+[iufh]?)|([A-Za-z_]\w*)|(->|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|[-+*/%&|^!~<>=(){}[\],;:.@])/gy;

interface Token {
  kind: "number" | "name" | "sign" | "end";
  text: string;
  at: number;
}

function tokens(text: string): Token[] {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (match === null) {
      throw new SyntaxError(`WGSL: ${JSON.stringify(text.slice(at, at + 20))}`);
    }
    const [, number, name, sign] = match;
    if (number !== undefined) {
      found.push({ kind: "number", text: number, at });
    } else if (name !== undefined) {
      found.push({ kind: "name", text: name, at });
    } else if (sign !== undefined) {
      found.push({ kind: "sign", text: sign, at });
    }
  }
  found.push({ kind: "end", text: "", at: text.length });
  return found;
}

// Names that are followed by a list of types in angle brackets.
const GENERIC = /^(vec[234]|mat[234]x[234]|array|ptr|atomic|bitcast)$/;

const PRECEDENCE = [
  ["||"],
  ["&&"],
  ["|"],
  ["^"],
  ["&"],
  ["==", "!="],
  ["<", ">", "<=", ">="],
  ["<<", ">>"],
  ["+", "-"],
  ["*", "/", "%"],
];

class Parser {
  private readonly tokens: Token[];
  private place = 0;

  constructor(private readonly text: string) {
    this.tokens = tokens(text);
  }

  private get next(): Token {
    return this.tokens[this.place]!;
  }

  private take(): Token {
    return this.tokens[this.place++]!;
  }

  private is(text: string): boolean {
    return this.next.text === text && this.next.kind !== "end";
  }

  private skip(text: string): boolean {
    if (this.is(text)) {
      this.place++;
      return true;
    }
    return false;
  }

  private fail(wanted: string): never {
    const { at } = this.next;
    throw new SyntaxError(
      `WGSL: ${wanted} wanted at ${JSON.stringify(this.text.slice(at, at + 40))}`,
    );
  }

  private expect(text: string): void {
    if (!this.skip(text)) {
      this.fail(text);
    }
  }

  private name(): string {
    return this.next.kind === "name" ? this.take().text : this.fail("a name");
  }

  // Of vec2<vec2<u32>> the last two brackets are one token.
  private closeAngle(): void {
    if (this.is(">>") || this.is(">=")) {
      const token = this.next;
      this.tokens[this.place] = { ...token, text: token.text.slice(1), at: token.at + 1 };
      return;
    }
    this.expect(">");
  }

  type(): TypeName {
    const name = this.name();
    const of: (TypeName | Expression)[] = [];
    if (GENERIC.test(name) && this.skip("<")) {
      while (!this.is(">") && !this.is(">>")) {
        of.push(
          this.next.kind === "name" && !this.isConstantNext() ? this.type() : this.additive(),
        );
        if (!this.skip(",")) {
          break;
        }
      }
      this.closeAngle();
    }
    return { name, of };
  }

  // A name in a type list is a size if an operator follows it.
  private isConstantNext(): boolean {
    return ["+", "-", "*", "/"].includes(this.tokens[this.place + 1]!.text);
  }

  private additive(): Expression {
    return this.binary(8);
  }

  module(): ModuleTree {
    const made: ModuleTree = { functions: [], globals: [], structs: [], aliases: [] };
    while (this.next.kind !== "end") {
      const attributes = this.attributes();
      const word = this.name();
      if (word === "fn") {
        made.functions.push(this.function(attributes));
      } else if (word === "struct") {
        made.structs.push(this.struct());
      } else if (word === "alias") {
        const name = this.name();
        this.expect("=");
        made.aliases.push({ name, type: this.type() });
        this.expect(";");
      } else if (word === "const" || word === "var") {
        made.globals.push(this.global(word, attributes));
      } else if (word === "enable" || word === "diagnostic" || word === "requires") {
        throw new SyntaxError(`WGSL: ${word} is not supported`);
      } else {
        this.place--;
        this.fail("a declaration");
      }
    }
    return made;
  }

  private attributes(): Map<string, Expression[]> {
    const found = new Map<string, Expression[]>();
    while (this.skip("@")) {
      const name = this.name();
      found.set(name, this.is("(") ? this.args() : []);
    }
    return found;
  }

  private args(): Expression[] {
    this.expect("(");
    const found: Expression[] = [];
    while (!this.is(")")) {
      found.push(this.expression());
      if (!this.skip(",")) {
        break;
      }
    }
    this.expect(")");
    return found;
  }

  private global(kind: "const" | "var", attributes: Map<string, Expression[]>): GlobalTree {
    let space = "private";
    if (kind === "var" && this.skip("<")) {
      space = this.name();
      if (this.skip(",")) {
        this.name();
      }
      this.expect(">");
    }
    const binding = attributes.get("binding")?.[0];
    const name = this.name();
    const type = this.skip(":") ? this.type() : undefined;
    const value = this.skip("=") ? this.expression() : undefined;
    this.expect(";");
    return {
      ...{ kind, space, name },
      ...(type && { type }),
      ...(value && { value }),
      ...(binding?.is === "number" && { binding: Number.parseInt(binding.text) }),
    };
  }

  private struct(): ModuleTree["structs"][number] {
    const name = this.name();
    const fields: { name: string; type: TypeName }[] = [];
    this.expect("{");
    while (!this.is("}")) {
      this.attributes();
      const field = this.name();
      this.expect(":");
      fields.push({ name: field, type: this.type() });
      this.skip(",");
    }
    this.expect("}");
    this.skip(";");
    return { name, fields };
  }

  private function(attributes: Map<string, Expression[]>): FunctionTree {
    const name = this.name();
    const parameters: Parameter[] = [];
    this.expect("(");
    while (!this.is(")")) {
      const own = this.attributes().get("builtin")?.[0];
      const parameter = this.name();
      this.expect(":");
      parameters.push({
        ...{ name: parameter, type: this.type() },
        ...(own?.is === "name" && { builtin: own.name }),
      });
      this.skip(",");
    }
    this.expect(")");
    const result = this.skip("->") ? this.type() : undefined;
    const workgroup = attributes.get("workgroup_size");
    return {
      ...{ name, parameters, body: this.block() },
      ...(result && { result }),
      ...(workgroup && { workgroup }),
    };
  }

  private block(): Statement[] {
    this.expect("{");
    const body: Statement[] = [];
    while (!this.is("}")) {
      if (!this.skip(";")) {
        body.push(this.statement());
      }
    }
    this.expect("}");
    return body;
  }

  private statement(): Statement {
    if (this.is("{")) {
      return { is: "block", body: this.block() };
    }
    switch (this.next.text) {
      case "if":
        this.take();
        return this.ifStatement();
      case "for":
        this.take();
        return this.forStatement();
      case "while": {
        this.take();
        const condition = this.expression();
        return { is: "while", condition, body: { is: "block", body: this.block() } };
      }
      case "loop":
        this.take();
        return this.loopStatement();
      default: {
        const simple = this.simple();
        this.expect(";");
        return simple;
      }
    }
  }

  private ifStatement(): Statement {
    const condition = this.expression();
    const then: Statement = { is: "block", body: this.block() };
    if (!this.skip("else")) {
      return { is: "if", condition, then };
    }
    const otherwise: Statement = this.skip("if")
      ? this.ifStatement()
      : { is: "block", body: this.block() };
    return { is: "if", condition, then, otherwise };
  }

  private forStatement(): Statement {
    this.expect("(");
    const first = this.is(";") ? undefined : this.simple();
    this.expect(";");
    const condition = this.is(";") ? undefined : this.expression();
    this.expect(";");
    const next = this.is(")") ? undefined : this.simple();
    this.expect(")");
    return {
      ...{ is: "for", body: { is: "block", body: this.block() } },
      ...(first && { first }),
      ...(condition && { condition }),
      ...(next && { next }),
    };
  }

  private loopStatement(): Statement {
    this.expect("{");
    const body: Statement[] = [];
    let continuing: Statement[] = [];
    while (!this.is("}")) {
      if (this.skip("continuing")) {
        continuing = this.block();
      } else if (!this.skip(";")) {
        body.push(this.statement());
      }
    }
    this.expect("}");
    return { is: "loop", body, continuing };
  }

  // A statement without its semicolon, as the header of a for has it.
  private simple(): Statement {
    const word = this.next.text;
    if (word === "return") {
      this.take();
      return this.is(";") ? { is: "return" } : { is: "return", value: this.expression() };
    }
    if (word === "break" || word === "continue") {
      this.take();
      return { is: word };
    }
    if (word === "let" || word === "var" || word === "const") {
      this.take();
      const name = this.name();
      const type = this.skip(":") ? this.type() : undefined;
      const value = this.skip("=") ? this.expression() : undefined;
      return {
        ...{ is: "declare", kind: word, name },
        ...(type && { type }),
        ...(value && { value }),
      };
    }
    const target = this.unary();
    const sign = this.next.text;
    if (sign === "++" || sign === "--") {
      this.take();
      return { is: "assign", op: sign[0]!, target, value: { is: "number", text: "1" } };
    }
    if (/^(=|[-+*/%&|^]=|<<=|>>=)$/.test(sign)) {
      this.take();
      return { is: "assign", op: sign.slice(0, -1), target, value: this.expression() };
    }
    return target.is === "call" ? { is: "call", call: target } : this.fail("a statement");
  }

  expression(): Expression {
    return this.binary(0);
  }

  private binary(level: number): Expression {
    const signs = PRECEDENCE[level];
    if (signs === undefined) {
      return this.unary();
    }
    let left = this.binary(level + 1);
    while (this.next.kind === "sign" && signs.includes(this.next.text)) {
      const op = this.take().text;
      left = { is: "binary", op, left, right: this.binary(level + 1) };
    }
    return left;
  }

  private unary(): Expression {
    for (const op of ["-", "!", "~", "&", "*"]) {
      if (this.skip(op)) {
        return { is: "unary", op, of: this.unary() };
      }
    }
    let made = this.primary();
    for (;;) {
      if (this.skip(".")) {
        made = { is: "member", of: made, name: this.name() };
      } else if (this.skip("[")) {
        made = { is: "index", of: made, at: this.expression() };
        this.expect("]");
      } else {
        return made;
      }
    }
  }

  private primary(): Expression {
    if (this.next.kind === "number") {
      return { is: "number", text: this.take().text };
    }
    if (this.skip("(")) {
      const inner = this.expression();
      this.expect(")");
      return inner;
    }
    if (this.is("true") || this.is("false")) {
      return { is: "bool", value: this.take().text === "true" };
    }
    const callee = this.type();
    if (this.is("(")) {
      return { is: "call", callee, args: this.args() };
    }
    return callee.of.length > 0 ? { is: "type", type: callee } : { is: "name", name: callee.name };
  }
}

export const parse = (text: string): ModuleTree => new Parser(text).module();

// Makes JavaScript of the gradients' formulas in csrc/ops/pointwise/rows.yaml, whose head describes them. A formula
// becomes a function of the gradient `g` and the context `x` of a row (torch/ops/elementwise.ts), made of web/torch's
// operators. Numbers are computed in JavaScript, and conditions on numbers choose there.

const TOKEN =
  /\s*(?:(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([A-Za-z_]\w*)|(&&|\|\||[<>=!]=|[-+*/<>!(),;=]))/gy;

// Loosest first.
const BINARY = [["||"], ["&&"], ["==", "!="], ["<", "<=", ">", ">="], ["+", "-"], ["*", "/"]];
// Tensors' methods for the operators.
const METHODS = {
  ...{ "+": "add", "-": "sub", "*": "mul", "/": "div" },
  ...{ "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne" },
  ...{ "&&": "logical_and", "||": "logical_or" },
};
// a < b is b > a.
const TURNED = { "<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!=" };
const ROUNDED = { div_floor: "floor", div_trunc: "trunc" };
// Functions that do not take the tensor first.
const IMPORTED = ["polygamma"];
const NUMBERS = { pi: "Math.PI", nan: "NaN" };
const MATH = ["sqrt", "log"];

class Formula {
  constructor(text, inputs) {
    this.text = text;
    this.inputs = inputs;
    this.tokens = [];
    this.bound = new Map();
    this.statements = [];
    TOKEN.lastIndex = 0;
    for (let at = 0; at < text.length; at = TOKEN.lastIndex) {
      const found = TOKEN.exec(text);
      if (found === null) {
        throw new Error(`the gradient ${text} has no meaning from: ${text.slice(at)}`);
      }
      this.tokens.push(found[1] ?? found[2] ?? found[3]);
    }
    this.at = 0;
  }

  fail(why) {
    throw new Error(`the gradient ${this.text}: ${why}`);
  }

  accept(token) {
    return this.tokens[this.at] === token && ++this.at > 0;
  }

  expect(token) {
    if (!this.accept(token)) {
      this.fail(`${token} is missing before ${this.tokens[this.at] ?? "the end"}`);
    }
  }

  // A value is { code, tensor }: JavaScript, and whether it gives a tensor. Of an input, `given` is the code of what was
  // given, which may be a number and will do as an operand.
  whole() {
    while (this.accept("let")) {
      const name = this.tokens[this.at++];
      this.expect("=");
      const value = this.binary(0);
      this.expect(";");
      // Its own name could be that of an argument.
      const code = `${name}_`;
      this.statements.push(`const ${code} = ${value.code};`);
      this.bound.set(name, { code, tensor: value.tensor });
    }
    const value = this.binary(0);
    if (this.at < this.tokens.length) {
      this.fail(`${this.tokens[this.at]} does not belong there`);
    }
    const code = this.asTensor(value);
    return this.statements.length === 0
      ? `(g, x) => ${code}`
      : `(g, x) => { ${this.statements.join(" ")} return ${code}; }`;
  }

  // A choice among numbers chooses a tensor of zeros too.
  asTensor({ code, tensor, choice }) {
    if (choice !== undefined) {
      const [condition, yes, no] = choice;
      return `${condition.code} ? ${this.asTensor(yes)} : ${this.asTensor(no)}`;
    }
    if (!tensor && Number(code) !== 0) {
      this.fail("a number other than zero is no gradient");
    }
    return tensor ? code : "zeros_like(g)";
  }

  binary(level) {
    if (level === BINARY.length) {
      return this.unary();
    }
    let left = this.binary(level + 1);
    for (
      let sign = this.tokens[this.at];
      BINARY[level].includes(sign);
      sign = this.tokens[this.at]
    ) {
      this.at++;
      left = this.combined(left, sign, this.binary(level + 1));
    }
    return left;
  }

  combined(left, sign, right) {
    if (!left.tensor && !right.tensor) {
      return {
        code: `(${left.code} ${sign === "==" ? "===" : sign} ${right.code})`,
        tensor: false,
      };
    }
    if (left.tensor) {
      return { code: `${left.code}.${METHODS[sign]}(${right.given ?? right.code})`, tensor: true };
    }
    if (sign === "-") {
      return { code: `${right.code}.rsub(${left.code})`, tensor: true };
    }
    if (sign === "/") {
      return { code: `${right.code}.reciprocal().mul(${left.code})`, tensor: true };
    }
    if (sign === "&&" || sign === "||") {
      this.fail("a condition on a number beside one on tensors");
    }
    return { code: `${right.code}.${METHODS[TURNED[sign] ?? sign]}(${left.code})`, tensor: true };
  }

  unary() {
    if (this.accept("-")) {
      const { code, tensor } = this.unary();
      return { code: tensor ? `${code}.neg()` : `-${code}`, tensor };
    }
    if (this.accept("!")) {
      const { code, tensor } = this.unary();
      return { code: tensor ? `${code}.logical_not()` : `!${code}`, tensor };
    }
    return this.primary();
  }

  primary() {
    if (this.accept("(")) {
      const inner = this.binary(0);
      this.expect(")");
      return inner;
    }
    const token = this.tokens[this.at++] ?? this.fail("it ends too early");
    if (/^\d/.test(token)) {
      return { code: String(Number(token)), tensor: false };
    }
    if (this.accept("(")) {
      const args = [];
      do {
        args.push(this.binary(0));
      } while (this.accept(","));
      this.expect(")");
      return this.called(token, args);
    }
    if (token === "g") {
      return { code: "g", tensor: true };
    }
    if (token === "out") {
      return { code: "x.out", tensor: true };
    }
    if (this.inputs.includes(token)) {
      return { code: `x.${token}`, given: `x.input(${this.inputs.indexOf(token)})`, tensor: true };
    }
    if (/^s\d$/.test(token)) {
      return { code: `x.s[${token.slice(1)}]`, tensor: false };
    }
    if (token in NUMBERS) {
      return { code: NUMBERS[token], tensor: false };
    }
    return this.bound.get(token) ?? this.fail(`there is no ${token}`);
  }

  called(name, args) {
    const codes = args.map(({ code, given }, k) => (k > 0 && given) || code);
    if (name === "select") {
      const [no, yes, condition] = args;
      if (!condition.tensor) {
        const tensor = no.tensor || yes.tensor;
        const choice = [condition, yes, no];
        return { code: `(${condition.code} ? ${yes.code} : ${no.code})`, tensor, choice };
      }
      return { code: `where(${condition.code}, ${yes.code}, ${no.code})`, tensor: true };
    }
    if (args.every(({ tensor }) => !tensor)) {
      return MATH.includes(name)
        ? { code: `Math.${name}(${codes.join(", ")})`, tensor: false }
        : this.fail(`${name} of numbers`);
    }
    if (IMPORTED.includes(name)) {
      const plain = args.map(({ code }) => code);
      return { code: `${name}(${plain.join(", ")})`, tensor: true };
    }
    if (name in ROUNDED) {
      const [a, b] = codes;
      return { code: `${a}.div(${b}, { rounding_mode: "${ROUNDED[name]}" })`, tensor: true };
    }
    const [first, ...rest] = codes;
    return { code: `${first}.${name}(${rest.join(", ")})`, tensor: true };
  }
}

const compiled = (formulas, inputs) =>
  `[${formulas.map((text) => (text === null ? "undefined" : new Formula(text, inputs).whole())).join(", ")}]`;

/** A module with the formulas of all rows, by the names of rows and of operators that differentiate otherwise. */
export function gradients(rows) {
  const entries = Object.entries(rows).flatMap(([name, { inputs, grad, grad_as: others }]) => [
    ...(grad.length === 0 ? [] : [[name, compiled(grad, inputs)]]),
    ...Object.entries(others).map(([other, formulas]) => [other, compiled(formulas, inputs)]),
  ]);
  return (
    'import { zeros_like } from "../ops/factory";\n' +
    'import { polygamma, where } from "../ops/pointwise";\n' +
    `export const formulas = {\n${entries.map(([name, code]) => `  ${name}: ${code},\n`).join("")}};\n`
  );
}

/** The expressions of a graph file: integers from 0 to 2^64 - 1, names, and operators. */

import { quote, refuse } from "./errors";
import type { Json } from "./json";

export type Expression = bigint | string | readonly [Operator, Expression, Expression];
export type Values = ReadonlyMap<string, bigint>;

const OPERATORS = ["+", "-", "*", "/", "ceil/", "%", "min", "max", ">>", "f32"] as const;
type Operator = (typeof OPERATORS)[number];

const MOST = (1n << 64n) - 1n;
const DEEPEST = 32;

/** Throws GraphFileError for what is not an expression. */
export function parseExpression(value: Json, where: string, depth = 0): Expression {
  if (typeof value === "string") {
    return value;
  }
  if (typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value))) {
    const integer = BigInt(value);
    if (integer >= 0n && integer <= MOST) {
      return integer;
    }
  }
  if (Array.isArray(value) && value.length === 3 && depth <= DEEPEST) {
    const operator = value[0] as Operator;
    if (OPERATORS.includes(operator)) {
      return [
        operator,
        parseExpression(value[1]!, where, depth + 1),
        parseExpression(value[2]!, where, depth + 1),
      ];
    }
  }
  refuse(`${where}: ${quote(value)} is not an expression`);
}

/** Adds the names that an expression uses. */
export function addNames(expression: Expression, names: Set<string>): void {
  if (typeof expression === "string") {
    names.add(expression);
  } else if (typeof expression !== "bigint") {
    addNames(expression[1], names);
    addNames(expression[2], names);
  }
}

/** The value of an expression. Sums and products wrap at 2^64.
 *
 * Throws RangeError if a difference is negative, a divisor is 0, a shift is above 63, or a name has
 * no value. */
export function evaluate(expression: Expression, values: Values): bigint {
  if (typeof expression === "bigint") {
    return expression;
  }
  if (typeof expression === "string") {
    const value = values.get(expression);
    if (value === undefined) {
      throw new RangeError(`nothing is called ${quote(expression)}`);
    }
    return value;
  }
  const [operator, left, right] = expression;
  const a = evaluate(left, values);
  const b = evaluate(right, values);
  const fail = (): never => {
    throw new RangeError(`[${quote(operator)}, ${a}, ${b}] has no value`);
  };
  switch (operator) {
    case "+":
      return (a + b) & MOST;
    case "*":
      return (a * b) & MOST;
    case "-":
      return a < b ? fail() : a - b;
    case "/":
      return b === 0n ? fail() : a / b;
    case "%":
      return b === 0n ? fail() : a % b;
    case "ceil/":
      return b === 0n ? fail() : (a + b - 1n) / b;
    case "min":
      return a < b ? a : b;
    case "max":
      return a > b ? a : b;
    case ">>":
      return b > 63n ? fail() : a >> b;
    case "f32":
      return b === 0n ? fail() : bitsOf(Number(a) / Number(b));
  }
}

/** The bits of the nearest f32. */
const bitsOf = (value: number): bigint =>
  BigInt(new Uint32Array(new Float32Array([value]).buffer)[0]!);

/** The low 32 bits: a parameter, or a number of workgroups. */
export function word(expression: Expression, values: Values): number {
  return Number(evaluate(expression, values) & 0xffffffffn);
}

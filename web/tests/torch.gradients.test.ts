// What tools/gradients.mjs makes of the formulas of rows. That the gradients are PyTorch's, torch.operators tests.
import { expect, test } from "vitest";
import { gradients } from "../tools/gradients.mjs";

const made = (formula: string | null, inputs = ["a", "b"]): string => {
  const grad = [formula, ...inputs.slice(1).map(() => null)];
  const text = gradients({ row: { inputs, grad, grad_as: {} } });
  return /row: \[(.*?)(?:, undefined)*\],\n/.exec(text)![1]!;
};

test.each([
  ["g", "(g, x) => g"],
  ["0.0", "(g, x) => zeros_like(g)"],
  ["g * b", "(g, x) => g.mul(x.input(1))"],
  ["b * g", "(g, x) => x.b.mul(g)"],
  ["g - a * b / 2.0", "(g, x) => g.sub(x.a.mul(x.input(1)).div(2))"],
  ["g * (1.0 - s0)", "(g, x) => g.mul((1 - x.s[0]))"],
  ["2.0 - a", "(g, x) => x.a.rsub(2)"],
  ["2.0 / -a", "(g, x) => x.a.neg().reciprocal().mul(2)"],
  ["g * (sqrt(2.0) / pi)", "(g, x) => g.mul((Math.sqrt(2) / Math.PI))"],
  ["g * sqrt(a)", "(g, x) => g.mul(x.a.sqrt())"],
  [
    "select(0.0, g, a > 0.0 && !(b <= a))",
    "(g, x) => where(x.a.gt(0).logical_and(x.b.le(x.input(0)).logical_not()), g, 0)",
  ],
  ["select(g, 0.0, s0 == 0.0)", "(g, x) => (x.s[0] === 0) ? zeros_like(g) : g"],
  ["let x = exp(a); g * x", "(g, x) => { const x_ = x.a.exp(); return g.mul(x_); }"],
  ["div_floor(a, b)", '(g, x) => x.a.div(x.input(1), { rounding_mode: "floor" })'],
  ["polygamma(1.0, a)", "(g, x) => polygamma(1, x.a)"],
])("%s", (formula, code) => {
  expect(made(formula)).toBe(code);
});

test.each([
  ["g * c", /there is no c/],
  ["g *", /ends too early/],
  ["g g", /g does not belong there/],
  ["(g", /\) is missing before the end/],
  ["g ? a", /has no meaning from: {2}\? a/],
  ["1.0", /a number other than zero is no gradient/],
  ["g * exp(2.0)", /exp of numbers/],
  ["select(0.0, g, s0 > 0.0 && a > 0.0)", /a condition on a number/],
])("%s is refused", (formula, message) => {
  expect(() => made(formula)).toThrow(message);
});

test("operators that differentiate otherwise", () => {
  const row = { inputs: ["a"], grad: [], grad_as: { relu: ["g", null] } };
  expect(gradients({ row })).toContain("relu: [(g, x) => g, undefined]");
  expect(gradients({ row })).not.toContain("row:");
});

// 200 random programs of operators, with gradients, against PyTorch in float64.
import { beforeAll, expect, test } from "vitest";
import { torch, type Nested, type Tensor } from "../torch";
import { jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";

type Argument = number | boolean | number[] | { long: number[] };

interface Program {
  inputs: Nested[];
  steps: [string, number[], Argument[]][];
  last: Nested[];
  total: number;
  gradients: (Nested | null)[];
}

const programs = jsonOf<Program[]>("programs.json");

beforeAll(initTorch);

type Call = (...args: unknown[]) => Tensor;

const numbers = (value: Nested): number[] =>
  Array.isArray(value) ? value.flatMap(numbers) : [Number(value)];

// Relative to the largest element: programs amplify the rounding of single elements.
function expectClose(actual: Nested, expected: Nested, what: string): void {
  const [a, b] = [numbers(actual), numbers(expected)];
  expect(a.length).toBe(b.length);
  const scale = Math.max(1, ...b.map(Math.abs));
  const error = Math.max(0, ...a.map((x, i) => Math.abs(x - b[i]!))) / scale;
  expect(error, what).toBeLessThan(1e-4);
}

async function run(program: Program): Promise<void> {
  const inputs = program.inputs.map((values) =>
    torch.tensor(values, { dtype: "float32", requires_grad: true }),
  );
  const values: Tensor[] = [...inputs];
  for (const [name, operands, args] of program.steps) {
    const call = (torch as unknown as Record<string, Call>)[name]!;
    const given = args.map((one) =>
      typeof one === "object" && "long" in one ? torch.tensor(one.long) : one,
    );
    values.push(call(...operands.map((k) => values[k]!), ...given));
  }
  const last = values.slice(-3);
  const total = last.map((value) => value.tanh().sum()).reduce((a, b) => a.add(b));
  const gradients = torch.autograd.grad(total, inputs, undefined, { allow_unused: true });
  expectClose(Number(await total.item()), program.total, "total");
  for (const [k, value] of last.entries()) {
    expectClose(await value.tolist(), program.last[k]!, `value ${k}`);
  }
  for (const [k, expected] of program.gradients.entries()) {
    expect(gradients[k] === undefined).toBe(expected === null);
    if (expected !== null) {
      expectClose(await gradients[k]!.tolist(), expected, `gradient ${k}`);
    }
  }
}

test("200 programs", async () => {
  expect(programs.length).toBe(200);
  const failed: string[] = [];
  for (const [k, program] of programs.entries()) {
    try {
      await torch.scope(() => run(program));
    } catch (error) {
      failed.push(`${k}: ${String(error).split("\n")[0]!} ${JSON.stringify(program.steps)}`);
    }
  }
  expect(failed.join("\n")).toBe("");
});

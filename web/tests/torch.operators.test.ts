// Every operator on samples of PyTorch's op_db: results and gradients.
import { beforeAll, expect, test } from "vitest";
import { nn, torch } from "../torch";
import { replay, type Operator, type Outcome } from "../site/operators/replay";
import { jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";
import { chosen, problems, unaccounted } from "./torch/samples";

const operators = jsonOf<Operator[]>("ops.json");

beforeAll(initTorch);

test.each(operators.map((operator) => [operator.op, operator] as const))(
  "%s",
  async (_, operator) => {
    const outcomes: Outcome[] = [];
    for (const sample of chosen(operator)) {
      outcomes.push(await torch.scope(() => replay(operator, sample)));
    }
    expect(problems(operator.op, outcomes).join("\n")).toBe("");
  },
);

test("each function has samples, or a reason why not", () => {
  const functions = Object.entries({ ...torch, ...nn.functional } as Record<string, unknown>)
    .filter(([, one]) => typeof one === "function")
    .map(([name]) => name);
  expect(unaccounted(operators, functions)).toEqual([]);
});

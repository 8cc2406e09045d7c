// Every operator on samples of PyTorch's op_db: results and gradients.
import { beforeAll, expect, test } from "vitest";
import { torch } from "../torch";
import { replay, type Operator } from "../site/operators/replay";
import { jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";
import { chosen } from "./torch/samples";

const operators = jsonOf<Operator[]>("ops.json");

beforeAll(initTorch);

test.each(operators.map((operator) => [operator.op, operator] as const))(
  "%s",
  async (_, operator) => {
    const failed: string[] = [];
    for (const [k, sample] of chosen(operator).entries()) {
      const outcome = await torch.scope(() => replay(operator, sample));
      // What is not implemented says so, and never gives a wrong result.
      if (outcome.status === "differs") {
        failed.push(`sample ${k} ${outcome.status}: ${outcome.message}`);
      }
    }
    expect(failed.join("\n")).toBe("");
  },
);

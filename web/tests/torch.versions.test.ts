// Tensors that are changed between an operator and its gradient: the gradient is that of before, or an error.
import { beforeAll, expect, test } from "vitest";
import { torch, type Tensor } from "../torch";
import { replay, type Operator, type Outcome } from "../site/operators/replay";
import { cpuDevice } from "./cpu/device";
import { long } from "./long";
import { jsonOf } from "./torch/files";

const operators = jsonOf<Operator[]>("ops.json");

/** How many samples of an operator are looked at. */
const MOST = long ? 3 : 1;
const MODIFIED = /has been modified by an inplace operation/;

beforeAll(async () => {
  await torch.init(cpuDevice());
});

function change(tensor: Tensor): void {
  const plain = tensor.detach();
  try {
    if (plain.is_floating_point()) {
      plain.mul_(-2).add_(3);
    } else {
      // Indices stay in their range.
      plain.copy_(plain.dtype === "bool" ? plain.logical_not() : torch.zeros_like(plain));
    }
  } catch (error) {
    // Nothing writes what has an element twice.
    if (!/single memory location/.test(String(error))) {
      throw error;
    }
  }
}

test.each(
  operators.flatMap((operator) => {
    const samples = operator.samples.filter((one) => (one.cotangents?.length ?? 0) > 0);
    return samples.length === 0 ? [] : [[operator.op, operator, samples.slice(0, MOST)] as const];
  }),
)("%s", async (_, operator, samples) => {
  const wrong: string[] = [];
  const look = (what: string, { status, message }: Outcome): void => {
    if (status === "differs" && !MODIFIED.test(message)) {
      wrong.push(`${what}: ${message}`);
    }
  };
  for (const [k, sample] of samples.entries()) {
    let inputs = 0;
    const outcome = await torch.scope(() =>
      replay(operator, sample, (given) => {
        inputs = given.length;
      }),
    );
    if (outcome.status !== "equal") {
      continue;
    }
    for (let n = 0; n < inputs; n++) {
      look(
        `sample ${k}, input ${n}`,
        await torch.scope(() => replay(operator, sample, (given) => change(given[n]!))),
      );
    }
    look(
      `sample ${k}, results`,
      await torch.scope(() => replay(operator, sample, (__, outs) => outs.forEach(change))),
    );
  }
  expect(wrong.join("\n")).toBe("");
});

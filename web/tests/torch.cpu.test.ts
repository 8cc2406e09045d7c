// Every operator on samples of PyTorch's op_db, without a GPU: its shaders run as JavaScript. An access beyond a buffer
// and a barrier that not all invocations reach raise.
import { beforeAll, expect, test } from "vitest";
import { torch, type Tensor } from "../torch";
import { replay, type Operator, type Outcome } from "../site/operators/replay";
import { cpuDevice } from "./cpu/device";
import { jsonOf } from "./torch/files";
import { chosen, problems } from "./torch/samples";

const operators = jsonOf<Operator[]>("ops.json");

beforeAll(async () => {
  await torch.init(cpuDevice());
});

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

test("what the comparison must not let pass", async () => {
  const add = operators.find(({ op }) => op === "add")!;
  const sample = add.samples.find(({ gradients }) => gradients?.every((one) => one !== null))!;
  const noGradient = { ...add, name: "no_gradient" };
  const all = torch as unknown as Record<string, unknown>;
  all.no_gradient = (x: Tensor, ...rest: [Tensor]) => torch.add(x.detach(), ...rest);
  all.raises = () => torch.float_power(torch.ones([1]), 2);
  expect((await replay(noGradient, sample)).message).toBe("gradient 0: there is none");
  const raised = await replay({ ...add, name: "raises" }, sample);
  expect(problems("add", [raised])).toEqual([
    expect.stringMatching(/^sample 0 absent: float_power/),
    expect.stringMatching(/^no sample ran/),
  ]);
});

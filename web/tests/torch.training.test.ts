// Networks that PyTorch trained: from the same first state the same losses and the same last state.
import { beforeAll, expect, test } from "vitest";
import { nn, optim, safetensors, torch, type Tensor } from "../torch";
import { bytesOf, jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";

const record = jsonOf<{
  steps: number;
  batch: number;
  runs: Record<string, { losses: number[]; shape: number[] }>;
}>("training.json");

beforeAll(initTorch);

const mlp = (): nn.Module =>
  new nn.Sequential(
    new nn.Linear(64, 32),
    new nn.ReLU(),
    new nn.LayerNorm(32),
    new nn.Linear(32, 10),
  );

const convolutional = (): nn.Module =>
  new nn.Sequential(
    new nn.Conv2d(1, 8, 3, { padding: 1, bias: false }),
    new nn.BatchNorm2d(8),
    new nn.GELU(),
    new nn.MaxPool2d(2),
    new nn.Conv2d(8, 8, 3, { stride: 2 }),
    new nn.Flatten(),
    new nn.Linear(8, 10),
  );

class Attention extends nn.Module {
  place = new nn.Embedding(8, 8);
  attention = new nn.MultiheadAttention(8, 2, { batch_first: true });
  norm = new nn.LayerNorm(8);
  out = new nn.Linear(64, 10);

  override forward(input: Tensor): Tensor {
    const x = input.add(this.place.forward(torch.arange(8)));
    return this.out.forward(this.norm.forward(x.add(this.attention.forward(x, x, x))).flatten(1));
  }
}

const momentum = { lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 1e-3 };
const runs: [string, () => nn.Module, (p: nn.Parameter[]) => optim.SGD | optim.Adam][] = [
  ["mlp-sgd", mlp, (p) => new optim.SGD(p, { lr: 0.1 })],
  ["mlp-momentum", mlp, (p) => new optim.SGD(p, momentum)],
  ["mlp-adam", mlp, (p) => new optim.Adam(p, { lr: 0.01, weight_decay: 1e-3, amsgrad: true })],
  ["conv-adamw", convolutional, (p) => new optim.AdamW(p, { lr: 0.01 })],
  ["attention-sgd", () => new Attention(), (p) => new optim.SGD(p, { lr: 0.1 })],
];

async function largestDifference(a: Tensor, b: Tensor): Promise<number> {
  return Number(await a.float().sub(b.float()).abs().max().item());
}

// From the middle of a training in Python, with the optimizer's state of there.
test.each(runs.filter(([name]) => /momentum|adam/.test(name)))("%s goes on", async (...run) => {
  const [name, make, optimizerOf] = run;
  const { losses, shape } = record.runs[name]!;
  const data = safetensors.load(bytesOf("digits.safetensors"));
  const half = torch.load<{
    model: Record<string, Tensor>;
    optimizer: optim.OptimizerStateDict;
  }>(bytesOf(`${name}-half.pt`));
  const model = make();
  model.load_state_dict(half.model);
  const optimizer = optimizerOf(model.parameters());
  const loaded = optimizer.load_state_dict(half.optimizer);
  expect(() => {
    optimizer.step();
  }).toThrow(/await it/);
  await loaded;
  const before = optimizer.state_dict();
  expect(before.param_groups).toEqual(half.optimizer.param_groups);
  for (const [k, values] of Object.entries(half.optimizer.state)) {
    expect(Object.keys(before.state[k]!)).toEqual(Object.keys(values));
    for (const [key, value] of Object.entries(values)) {
      const own = before.state[k]![key] as Tensor;
      expect(await own.tolist()).toEqual(await (value as Tensor).tolist());
    }
  }
  for (let k = Math.floor(record.steps / 2); k < record.steps; k++) {
    await torch.scope(async () => {
      const of = (tensor: Tensor): Tensor => tensor.narrow(0, k * record.batch, record.batch);
      const output = model.forward(of(data.get("x")!).reshape(-1, ...shape)) as Tensor;
      const loss = nn.functional.cross_entropy(output, of(data.get("y")!));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      const error = Math.abs(Number(await loss.item()) - losses[k]!);
      expect(error, `loss of step ${k}`).toBeLessThan(1e-4 * (1 + losses[k]!));
    });
  }
  const expected = safetensors.load(bytesOf(`${name}.safetensors`));
  for (const [key, value] of model.state_dict()) {
    expect(await largestDifference(value, expected.get(key)!), key).toBeLessThan(2e-3);
  }
});

test.each(runs)("%s", async (name, make, optimizerOf) => {
  const { losses, shape } = record.runs[name]!;
  const data = safetensors.load(bytesOf("digits.safetensors"));
  const model = make();
  model.load_state_dict(torch.load(bytesOf(`${name}.pt`)));
  const optimizer = optimizerOf(model.parameters());
  const actual: number[] = [];
  let memory = 0;
  for (let k = 0; k < record.steps; k++) {
    await torch.scope(async () => {
      const of = (tensor: Tensor): Tensor => tensor.narrow(0, k * record.batch, record.batch);
      const output = model.forward(of(data.get("x")!).reshape(-1, ...shape)) as Tensor;
      const loss = nn.functional.cross_entropy(output, of(data.get("y")!));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      actual.push(Number(await loss.item()));
    });
    if (k === 2) {
      memory = torch.memory().used;
    }
  }
  // A step leaves nothing behind but parameters, gradients and the optimizer's state.
  expect(torch.memory().used).toBeLessThanOrEqual(memory);
  actual.forEach((loss, k) => {
    expect(Math.abs(loss - losses[k]!), `loss of step ${k}`).toBeLessThan(2e-4 * (1 + losses[k]!));
  });
  const expected = safetensors.load(bytesOf(`${name}.safetensors`));
  const state = model.state_dict();
  expect([...state.keys()].sort()).toEqual([...expected.keys()].sort());
  for (const [key, value] of expected) {
    expect(await largestDifference(state.get(key)!, value), key).toBeLessThan(5e-3);
  }
});

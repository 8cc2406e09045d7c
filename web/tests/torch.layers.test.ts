// Layers of nn against those of PyTorch: results, gradients, and states. Without a GPU.
import { beforeAll, expect, test } from "vitest";
import { nn, optim, torch, Tensor } from "../torch";
import { cpuDevice } from "./cpu/device";
import { bytesOf } from "./torch/files";

interface Layer {
  name: string;
  args: unknown[];
  state: Record<string, Tensor>;
  inputs: Tensor[];
  outputs: Tensor[];
  weights: Tensor[];
  gradients: Tensor[];
  after: Record<string, Tensor>;
}

interface Einsum {
  equation: string;
  operands: Tensor[];
  output: Tensor;
  weight: Tensor;
  gradients: Tensor[];
}

let layers: Layer[] = [];
let einsums: Einsum[] = [];

beforeAll(async () => {
  await torch.init(cpuDevice());
  ({ layers, einsums } = torch.load<{ layers: Layer[]; einsums: Einsum[] }>(bytesOf("layers.pt")));
});

const flat = (value: unknown): Tensor[] =>
  value instanceof Tensor ? [value] : (value as unknown[]).flatMap(flat);

async function same(what: string, actual: Tensor | undefined, expected: Tensor): Promise<void> {
  expect(actual?.shape, what).toEqual(expected.shape);
  const [a, b] = [actual!.detach(), expected];
  expect(a.dtype, what).toBe(b.dtype);
  expect(await torch.allclose(a, b, { rtol: 2e-5, atol: 1e-5 }), what).toBe(true);
}

test("layers", async () => {
  expect(layers.length).toBeGreaterThan(30);
  for (const { name, args, state, inputs, outputs, weights, gradients, after } of layers) {
    const what = `${name}(${JSON.stringify(args)})`;
    const make = (nn as unknown as Record<string, new (...args: unknown[]) => nn.Module>)[name]!;
    const layer = new make(...args);
    expect([...layer.state_dict().keys()], what).toEqual(Object.keys(state));
    layer.load_state_dict(state);
    inputs.forEach((input) => input.requires_grad_());
    const given =
      name.startsWith("LSTM") && inputs.length > 1 ? [inputs[0], inputs.slice(1)] : inputs;
    const results = flat(layer.forward(...given));
    expect(results.length, what).toBe(outputs.length);
    for (const [k, output] of outputs.entries()) {
      await same(`${what}: result ${k}`, results[k], output);
    }
    const found = torch.autograd.grad(results, [...inputs, ...layer.parameters()], weights);
    for (const [k, gradient] of gradients.entries()) {
      await same(`${what}: gradient ${k}`, found[k], gradient);
    }
    for (const [key, value] of layer.state_dict()) {
      await same(`${what}: ${key} afterwards`, value, after[key]!);
    }
  }
});

test("einsum", async () => {
  expect(einsums.length).toBeGreaterThan(15);
  for (const { equation, operands, output, weight, gradients } of einsums) {
    operands.forEach((one) => one.requires_grad_());
    const result = torch.einsum(equation, ...operands);
    await same(equation, result, output);
    const found = torch.autograd.grad(result, operands, [weight]);
    for (const [k, gradient] of gradients.entries()) {
      await same(`${equation}: gradient ${k}`, found[k], gradient);
    }
  }
});

test("ModuleDict", () => {
  const dict = new nn.ModuleDict({ a: new nn.Linear(2, 2), b: new nn.ReLU() });
  expect([...dict]).toEqual(["a", "b"]);
  expect(dict.length).toBe(2);
  expect(dict.get("b")).toBeInstanceOf(nn.ReLU);
  expect([...dict.state_dict().keys()]).toEqual(["a.weight", "a.bias"]);
  dict.update({ b: new nn.Linear(2, 1, { bias: false }) });
  expect(dict.parameters().length).toBe(3);
  expect(() => dict.get("c")).toThrow(/no c/);
  expect(() => dict.update({ forward: new nn.ReLU() })).toThrow(
    "attribute 'forward' already exists",
  );
  expect(() => dict.forward()).toThrow(/no forward/);
});

test("modules in another dtype keep their parameters", async () => {
  const model = new nn.Sequential(new nn.Linear(3, 2), new nn.BatchNorm1d(2));
  const [weight] = model.parameters() as [nn.Parameter];
  const before = weight.detach().half();
  const optimizer = new optim.SGD(model.parameters(), { lr: 1 });
  weight.grad = torch.ones([2, 3]);
  expect(model.half()).toBe(model);
  expect([...model.state_dict().values()].map(({ dtype }) => dtype)).toEqual([
    ...[...Array<string>(6).fill("float16"), "int64"],
  ]);
  expect(model.parameters()[0]).toBe(weight);
  expect(weight.grad.dtype).toBe("float16");
  expect(await torch.equal(weight.detach(), before)).toBe(true);
  optimizer.step();
  expect(await torch.equal(weight.detach(), before.sub(1))).toBe(true);
  expect(
    model
      .to("webgpu" as "float32")
      .float()
      .parameters()[0]!.dtype,
  ).toBe("float32");
  expect(() => model.to("int64")).toThrow(/only accepts floating point dtypes/);
  expect(() => model.to("cuda" as "float32")).toThrow(/no device or dtype cuda/);
});

test("results that are read back", async () => {
  const x = torch.tensor([[1, 0, 3], [0, 5, 6]]); // prettier-ignore
  const y = x.float().requires_grad_();
  const picked = await y.masked_select(x.gt(2));
  expect(await picked.tolist()).toEqual([3, 5, 6]);
  picked.sum().backward();
  expect(await y.grad!.tolist()).toEqual([
    [0, 0, 1],
    [0, 1, 1],
  ]);
  // A mask over rows as an index.
  const rows = torch.tensor([false, true]);
  expect(await x.at(...(await rows.nonzero({ as_tuple: true }))).tolist()).toEqual([[0, 5, 6]]);
  expect(() => x.at(rows)).toThrow(/await mask.nonzero/);
  expect((await torch.zeros([2, 2]).nonzero()).shape).toEqual([0, 2]);
  expect(await torch.equal(x, x.clone())).toBe(true);
  expect(await torch.equal(x, x.t())).toBe(false);
  expect(await torch.equal(x, x.add(1))).toBe(false);
  const [a, b] = [torch.tensor([1, NaN, Infinity]), torch.tensor([1 + 1e-6, NaN, Infinity])];
  expect(await torch.allclose(a, b)).toBe(false);
  expect(await torch.allclose(a, b, { equal_nan: true })).toBe(true);
  expect(await torch.isclose(a, b, { rtol: 0, atol: 1e-8 }).tolist()).toEqual([false, false, true]);
});

test("meshgrid, T and einsum", async () => {
  const [a, b] = [torch.arange(3), torch.arange(2)];
  const grids = torch.meshgrid(a, b);
  expect(await grids[0]!.tolist()).toEqual([[0, 0], [1, 1], [2, 2]]); // prettier-ignore
  expect(torch.meshgrid([a, b], { indexing: "xy" }).map(({ shape }) => shape)).toEqual([
    ...[[2, 3], [2, 3]], // prettier-ignore
  ]);
  expect(() => torch.meshgrid(a, { index: "xy" } as object)).toThrow(/argument 'index'/);
  expect(torch.ones([2, 3, 4]).T.shape).toEqual([4, 3, 2]);
  const [x, y] = [torch.ones([2, 3]), torch.ones([3, 4])];
  expect(await torch.einsum("ij,jk", x, y).tolist()).toEqual([[3, 3, 3, 3], [3, 3, 3, 3]]); // prettier-ignore
  expect(() => torch.einsum("ij,kj->ik", x, y)).toThrow(/subscript j has size 4/);
  expect(() => torch.einsum("ij->ik", x)).toThrow(/output subscript k does not appear/);
  expect(() => torch.einsum("ij", x, y)).toThrow(/fewer operands|more operands/);
  expect(() => torch.einsum("i", x)).toThrow(/number of subscripts/);
});

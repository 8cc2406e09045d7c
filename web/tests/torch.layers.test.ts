// Layers of nn against those of PyTorch: results, gradients, and states. Without a GPU.
import { beforeAll, expect, test } from "vitest";
import { nn, optim, Slice, torch, Tensor } from "../torch";
import { cpuDevice } from "./cpu/device";
import { long } from "./long";
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

interface Call {
  name: string;
  inputs: Tensor[];
  args: unknown[];
  output: Tensor;
  weight: Tensor;
  gradients: Tensor[];
}

let layers: Layer[] = [];
let einsums: Einsum[] = [];
let calls: Call[] = [];

beforeAll(async () => {
  await torch.init(cpuDevice());
  ({ layers, einsums, calls } = torch.load<{ layers: Layer[]; einsums: Einsum[]; calls: Call[] }>(
    bytesOf("layers.pt"),
  ));
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
  const names = layers.map(({ name }) => name);
  // Of each layer the first, and all by night.
  const taken = layers.filter(({ name }, k) => long || names.indexOf(name) === k);
  for (const { name, args, state, inputs, outputs, weights, gradients, after } of taken) {
    // vitest gives up a worker that does not answer for a minute.
    await new Promise((resolve) => setImmediate(resolve));
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

test("functions", async () => {
  expect(calls.length).toBeGreaterThan(10);
  for (const { name, inputs, args, output, weight, gradients } of calls) {
    inputs.forEach((one) => one.requires_grad_());
    const path = name.split(".");
    const at = path.length === 1 ? torch : path[0] === "nn" ? nn.functional : inputs[0];
    const call = (at as unknown as Record<string, (...all: unknown[]) => Tensor>)[path.at(-1)!]!;
    const given = name.startsWith("Tensor.") ? args : [...inputs, ...args];
    const what = `${name}(${JSON.stringify(args)})`;
    const result = call.apply(at, given);
    await same(what, result, output);
    const found = torch.autograd.grad(result, inputs, [weight], { allow_unused: true });
    for (const [k, gradient] of gradients.entries()) {
      await same(`${what}: gradient ${k}`, found[k] ?? torch.zeros_like(gradient), gradient);
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

test("composed functions", async () => {
  const x = torch.tensor([2, 3]);
  expect(await torch.vander(x, 3).tolist()).toEqual([[4, 2, 1], [9, 3, 1]]); // prettier-ignore
  expect(await torch.vander(x, 3, true).tolist()).toEqual([[1, 2, 4], [1, 3, 9]]); // prettier-ignore
  expect(await torch.matrix_power(torch.ones([2, 2]), 0).tolist()).toEqual([[1, 0], [0, 1]]); // prettier-ignore
  expect(await torch.cartesian_prod(x, x).tolist()).toEqual([[2, 2], [2, 3], [3, 2], [3, 3]]); // prettier-ignore
  expect(torch.matrix_power(torch.ones([2, 2]), 1).shape).toEqual([2, 2]);
  expect(() => torch.matrix_power(torch.ones([2, 2]), -1)).toThrow(/needs inverses/);
  expect(x.new_ones([2]).dtype).toBe("int64");
  expect([x.nelement(), x.element_size(), x.ndimension()]).toEqual([2, 8, 1]);
});

test("forms that change their tensor", async () => {
  const x = torch.tensor([1, 2, 3], { dtype: "float32" });
  const half = x.at(new Slice(1)).subtract_(5).absolute_();
  expect(await x.tolist()).toEqual([1, 3, 2]);
  expect(await half.tolist()).toEqual([3, 2]);
  expect(await x.ge_(2).tolist()).toEqual([0, 1, 1]);
  expect(await x.cumsum_(0).tolist()).toEqual([0, 1, 2]);
  expect(() => x.eq_(torch.ones([2, 3]))).toThrow(/output with shape \[3\] doesn't match/);
  expect(() => torch.tensor([1]).logit_()).toThrow(/can't be cast to the desired output type Long/);
  expect(() => x.requires_grad_().sign_()).toThrow(/a leaf Variable that requires grad/);
  expect(() => (x as unknown as { ge_: (...all: unknown[]) => void }).ge_(1, 2)).toThrow(
    "ge_(other) takes at most 1 arguments",
  );
});

test("layers with chance", async () => {
  torch.manual_seed(3);
  const x = torch.ones([4, 6, 5]);
  const dropped = new nn.Dropout1d(0.5).forward(x);
  const channels = await dropped.mean(2).reshape(-1).tolist();
  expect(new Set(channels as number[])).toEqual(new Set([0, 2]));
  for (const Layer of [nn.AlphaDropout, nn.FeatureAlphaDropout]) {
    const normal = torch.randn([40, 50, 3]);
    const out = new Layer(0.3).forward(normal);
    expect(Math.abs(Number(await out.mean().item()))).toBeLessThan(0.15);
    expect(Math.abs(Number(await out.std().item()) - 1)).toBeLessThan(0.15);
    expect(new Layer(0.3).eval().forward(normal)).toBe(normal);
  }
  expect(() => new nn.Dropout2d(2)).toThrow(RangeError);
  const slopes = new nn.RReLU(0.25, 0.5).forward(torch.full([50], -1, { dtype: "float32" }));
  expect(Number(await slopes.max().item())).toBeLessThanOrEqual(-0.25);
  expect(Number(await slopes.min().item())).toBeGreaterThanOrEqual(-0.5);
  const logits = torch.tensor([[0, 50, 0]], { dtype: "float32", requires_grad: true }); // prettier-ignore
  const chosen = nn.functional.gumbel_softmax(logits, 1, { hard: true });
  expect(await chosen.round().tolist()).toEqual([[0, 1, 0]]);
  expect(torch.autograd.grad(chosen.sum(), [logits])[0]!.shape).toEqual([1, 3]);
});

test("masks of attention", async () => {
  torch.manual_seed(1);
  const attention = new nn.MultiheadAttention(8, 2, { batch_first: true, bias: false });
  expect([...attention.state_dict().keys()]).toEqual(["in_proj_weight", "out_proj.weight"]);
  const x = torch.randn([2, 4, 8]);
  const short = x.narrow(1, 0, 3);
  const padding = torch.tensor([[false, false, false, true], [false, false, false, true]]); // prettier-ignore
  const wanted = attention.forward(x, short, short);
  await same("key_padding_mask", attention.forward(x, x, x, undefined, padding), wanted.detach());
  // The same as what is added, and for each head.
  const added = torch.zeros([4, 4]).masked_fill(padding.narrow(0, 0, 1), -Infinity);
  await same("attn_mask", attention.forward(x, x, x, added), wanted.detach());
  const heads = added.expand([4, 4, 4]);
  await same("a mask for each head", attention.forward(x, x, x, heads), wanted.detach());

  const layer = new nn.TransformerEncoderLayer(8, 2, { batch_first: true, dropout: 0 });
  const encoder = new nn.TransformerEncoder(() => layer, 1);
  const later = nn.Transformer.generate_square_subsequent_mask(4);
  const causal = encoder.forward(x, undefined, undefined, true).detach();
  await same("is_causal", encoder.forward(x, later), causal);
  const first = layer.forward(x.narrow(1, 0, 2), later.narrow(0, 0, 2).narrow(1, 0, 2));
  await same("what comes later does not count", causal.narrow(1, 0, 2), first.detach());
  expect(() => new nn.TransformerEncoderLayer(8, 2, {} as { batch_first: true })).toThrow(
    "TransformerEncoderLayer: batch_first must be true",
  );
  const swish = { batch_first: true as const, activation: "swish" as "gelu" };
  expect(() => new nn.TransformerDecoderLayer(8, 2, swish)).toThrow(RangeError);
});

test("ParameterList", () => {
  const list = new nn.ParameterList([torch.ones([2]), torch.zeros([3])]);
  expect([...list].map(({ shape }) => shape)).toEqual([[2], [3]]);
  expect(list.length).toBe(2);
  expect([...list.state_dict().keys()]).toEqual(["0", "1"]);
  expect(() => list.forward()).toThrow(/no forward/);
});

test("layers that check what they are given", () => {
  expect(() => new nn.LSTM(3, 4, { proj_size: 4 })).toThrow(/smaller than hidden_size/);
  expect(() => new nn.RNNCell(3, 4, { nonlinearity: "gelu" as "relu" })).toThrow(RangeError);
  expect(() => new nn.GRUCell(3, 4).forward(torch.ones([2, 2]))).toThrow(/GRUCell: Expected input/);
  expect(() => new nn.GRUCell(3, 4).forward(torch.ones([2, 3]), torch.ones([1, 4]))).toThrow(
    /Expected hidden of \[2, 4\], got \[1, 4\]/,
  );
  const mode = { padding_mode: "mirror" as "reflect" };
  expect(() => new nn.Conv1d(1, 1, 3, mode)).toThrow(RangeError);
  expect(() => new nn.Conv2d(1, 1, 3, { padding: "same", stride: 2 })).toThrow(RangeError);
  expect(() => new nn.Conv2d(3, 4, 3, { groups: 2 })).toThrow(/divisible by groups/);
  const back = new nn.ConvTranspose1d(1, 1, 3, { stride: 2 });
  expect(back.forward(torch.ones([1, 1, 4]), [10]).shape).toEqual([1, 1, 10]);
  expect(() => back.forward(torch.ones([1, 1, 4]), [12])).toThrow(/valid sizes .* from 9 to 10/);
  const f = nn.functional;
  const image = torch.ones([1, 1, 3, 3]);
  expect(() => f.pad(image, [0, 0, 3, 0], "reflect")).toThrow(/Padding size should be less than/);
  expect(() => f.pad(image, [4, 0, 0, 0], "circular")).toThrow(/wrapping around more than once/);
  expect(() => f.interpolate(image)).toThrow(/either size or scale_factor should be defined/);
  expect(() => f.interpolate(image, { size: 2, align_corners: true })).toThrow(RangeError);
  expect(() => f.interpolate(image, { size: 2, mode: "linear" })).toThrow(/Got 4D input/);
  expect(() => f.interpolate(image, { size: 2, antialias: true })).toThrow(RangeError);
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

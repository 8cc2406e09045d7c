// Edges of operators, with what PyTorch gives on the CPU written beside: special values, and arguments that it refuses.
import { beforeAll, expect, test, vi } from "vitest";
import { nn, optim, torch, type Tensor } from "../torch";
import { runtime } from "../torch/storage";
import { cpuDevice } from "./cpu/device";

beforeAll(async () => {
  await torch.init(cpuDevice());
});

const f = nn.functional;

const leaf = (values: number[] | number[][]): Tensor =>
  torch.tensor(values, { dtype: "float32", requires_grad: true });

/** The gradients of the sum of a function's values. */
async function slopes(
  call: (...inputs: Tensor[]) => Tensor,
  ...inputs: Tensor[]
): Promise<unknown> {
  const grads = torch.autograd.grad(call(...inputs).sum(), inputs) as Tensor[];
  return Promise.all(grads.map((grad) => grad.tolist()));
}

/** The second derivative of a function of single elements. */
async function curvature(call: (x: Tensor) => Tensor, values: number[]): Promise<unknown> {
  const x = leaf(values);
  const [first] = torch.autograd.grad(call(x).sum(), [x], undefined, { create_graph: true });
  const [second] = torch.autograd.grad(first!.sum(), [x]) as [Tensor];
  return second.tolist();
}

test("gradients of NaN and of zero", async () => {
  const [a, b] = [
    [1, NaN, 2, 3],
    [NaN, 1, 2, 2],
  ] as [number[], number[]];
  const shared = [
    [1, 1, 0.5, 1],
    [1, 1, 0.5, 0],
  ];
  expect(await slopes(torch.maximum, leaf(a), leaf(b))).toEqual(shared);
  expect(await slopes(torch.minimum, leaf(a), leaf(b))).toEqual([
    [1, 1, 0.5, 0],
    [1, 1, 0.5, 1],
  ]);
  expect(await slopes((x) => f.threshold(x, 0, 0), leaf([NaN, 0, 1]))).toEqual([[1, 0, 1]]);
  expect(await slopes(f.hardswish, leaf([NaN, -3, 0, 3]))).toEqual([[1, 0, 0.5, 1]]);
  expect(await slopes((x) => x.max(), leaf([1, NaN, NaN]))).toEqual([[0, 0.5, 0.5]]);
  expect(await slopes((x) => x.min(), leaf([1, NaN, 2]))).toEqual([[0, 1, 0]]);
  expect(await slopes((x) => x.median(), leaf([1, NaN, 2]))).toEqual([[0, 1, 0]]);
  expect(await slopes((x) => x.median(1).values, leaf([[1, NaN, 2]]))).toEqual([[[0, 1, 0]]]);
  expect(await slopes((x) => x.median(1, true).values, leaf([[1, 3, 2]]))).toEqual([[[0, 0, 1]]]);
  expect(await slopes((x) => x.norm(0.5), leaf([0, 0, 4]))).toEqual([[0, 0, 1]]);
  expect(await slopes(torch.sinc, leaf([0, 1e-30]))).toEqual([[0, 0]]);
});

test("second gradients where an exponential overflows, and at zero", async () => {
  for (const call of [(x: Tensor) => f.elu(x), (x: Tensor) => f.celu(x), f.selu]) {
    expect(await curvature(call, [0, 1, 100, 1e10])).toEqual([0, 0, 0, 0]);
  }
  expect(await curvature(torch.special_i1, [0])).toEqual([0]);
  expect(await curvature(torch.special_i1e, [0])).toEqual([0]);
});

test("pools by the largest, and areas without places", async () => {
  const x = leaf([[1, -3, 2, 5]]);
  expect(await f.lp_pool1d(x, Infinity, 2).tolist()).toEqual([[1, 5]]);
  expect(await slopes((one) => f.lp_pool1d(one, Infinity, 2), x)).toEqual([[[1, 0, 0, 1]]]);
  const image = torch.ones([1, 1, 5, 1]);
  expect(f.interpolate(image, { scale_factor: 0.5, mode: "area" }).shape).toEqual([1, 1, 2, 0]);
});

test("queries without any key", async () => {
  const [q, k, v] = [torch.ones([2, 2]), torch.ones([3, 2]), torch.ones([3, 2])];
  q.requires_grad_();
  const mask = torch.tensor([
    [-Infinity, -Infinity, -Infinity],
    [0, 0, -Infinity],
  ]);
  const out = f.scaled_dot_product_attention(q, k, v, mask);
  expect(await out.tolist()).toEqual([
    [0, 0],
    [1, 1],
  ]);
  out.sum().backward();
  expect(await q.grad!.isnan().any().item()).toBe(false);
  const attention = new nn.MultiheadAttention(4, 2, { batch_first: true });
  const x = torch.ones([2, 3, 4]);
  const padding = torch.tensor([
    [true, true, true],
    [false, false, true],
  ]);
  const [alone, other] = attention.forward(x, x, x, undefined, padding).unbind(0);
  const bias = attention.out_proj.bias!;
  expect(await torch.equal(alone!, bias.expand(3, 4))).toBe(true);
  expect(await other!.isnan().any().item()).toBe(false);
});

test("attention without a batch, and masks of other shapes and dtypes", async () => {
  const attention = new nn.MultiheadAttention(4, 1, { batch_first: true });
  const [x, y] = [torch.randn([2, 4]), torch.randn([3, 4])];
  const padding = torch.tensor([false, true, false]);
  const alone = attention.forward(x, y, y, undefined, padding);
  const batch = [x, y, y].map((one) => one.unsqueeze(0)) as [Tensor, Tensor, Tensor];
  const whole = attention.forward(...batch, undefined, padding.unsqueeze(0));
  expect(alone.shape).toEqual([2, 4]);
  expect(await torch.equal(alone, whole.squeeze(0))).toBe(true);
  const layer = new nn.TransformerEncoderLayer(4, 2, { batch_first: true, dropout: 0 });
  const seen = layer.forward(x, undefined, undefined, true);
  const both = layer.forward(x.unsqueeze(0), undefined, undefined, true).squeeze(0);
  expect(await torch.equal(seen, both)).toBe(true);
  const one = torch.ones([2, 1, 4]);
  expect(() => attention.forward(one, one, one, torch.zeros([5, 1]))).toThrow(
    /shape of attn_mask is \[5, 1\], but should be \[1, 1\] or \[2, 1, 1\]/,
  );
  expect(() => attention.forward(one, one, one, undefined, torch.zeros([1, 1]))).toThrow(
    /shape of key_padding_mask is \[1, 1\], but should be \[2, 1\]/,
  );
  const whole_numbers = torch.zeros([1, 1], { dtype: "int64" });
  expect(() => attention.forward(one, one, one, whole_numbers)).toThrow(/only bool and floating/);
  expect(() => f.scaled_dot_product_attention(one, one, one, whole_numbers)).toThrow(
    /Expected attn_mask dtype to be bool or float/,
  );
  expect(() => f.scaled_dot_product_attention(x, x, x, torch.zeros([3, 2, 2]))).toThrow(/expand/);
  expect(() => attention.forward(x, one, one)).toThrow(/unbatched 2D or batched 3D/);
});

test("arguments that PyTorch refuses", () => {
  const [x, whole, half] = [
    torch.ones([2, 2]),
    torch.ones([2, 2], { dtype: "int64" }),
    torch.ones([2, 2], { dtype: "float16" }),
  ];
  const first = [torch.tensor([0])];
  const image = torch.ones([1, 3, 4]);
  const weight = torch.ones([3, 4, 1]);
  expect(() => f.gelu(x, "tan" as "tanh")).toThrow(/must be either none or tanh/);
  expect(() => f.hardtanh(x, 1, 0)).toThrow(/min_val cannot be greater than max_val/);
  expect(() => f.softshrink(x, -1)).toThrow(/lambda must be in range/);
  expect(() => f.celu(x, 0)).toThrow(/alpha cannot be 0/);
  expect(() => torch.polygamma(-1, x)).toThrow(/does not support negative n/);
  expect(() => x.exponential_(0)).toThrow(/expects lambda > 0/);
  expect(() => torch.heaviside(x, whole)).toThrow(/tensors with different dtypes/);
  expect(() => half.lerp_(x, 0.5)).toThrow(/expected dtype float16 for `end`/);
  expect(() => whole.index_put_(first, torch.tensor(1.5))).toThrow(/dtypes match/);
  expect(() => half.masked_scatter(half.gt(0), x)).toThrow(/to have same dtypes/);
  expect(() => torch.addmm(half, x, x)).toThrow(/must have the same dtype/);
  expect(() => torch.addmm(torch.ones([3, 2, 2]), x, x)).toThrow(/Target sizes: \[2, 2\]/);
  expect(() => f.max_pool1d(image, 1.5)).toThrow(TypeError);
  expect(() => f.conv1d(image, weight, undefined, 1.5)).toThrow(/stride must be int/);
  expect(() => f.conv1d(image, torch.ones([2, 3, 0]))).toThrow(/kernel size should be greater/);
  expect(() => f.conv1d(torch.ones([1, 3, 0]), weight, undefined, 1, 1)).toThrow(/Only zero batch/);
  expect(() => f.conv_transpose1d(image, weight, undefined, 1, 2)).toThrow(/Output size is too/);
  expect(() => f.conv_transpose1d(image, weight, undefined, 2, 0, -1)).toThrow(
    /negative output_padding/,
  );
});

test("losses that PyTorch refuses, and those of nothing", async () => {
  const [x, y] = [torch.ones([2, 3]), torch.ones([2, 3])];
  const classes = torch.tensor([0, 2]);
  const few = torch.ones([2]);
  const bogus = { reduction: "average" as "mean" };
  expect(() => f.nll_loss(x, classes, bogus)).toThrow(/not a valid value for reduction/);
  expect(() => f.cross_entropy(x, classes, bogus)).toThrow(/not a valid value for reduction/);
  expect(() => f.nll_loss(x, classes, { weight: few })).toThrow(/all 3 classes or no classes/);
  expect(() => f.cross_entropy(x, classes, { label_smoothing: 1.5 })).toThrow(
    /label_smoothing must/,
  );
  expect(() => f.cross_entropy(x, y, { ignore_index: 1 })).toThrow(/ignore_index is not supported/);
  expect(() => f.smooth_l1_loss(x, y, { beta: -1 })).toThrow(/negative values for beta/);
  expect(() => f.huber_loss(x, y, { delta: 0 })).toThrow(/non-positive values for delta/);
  expect(() => f.binary_cross_entropy(x, torch.ones([3]))).toThrow(/different to the input size/);
  expect(() => f.triplet_margin_loss(x, y, x, { margin: 0 })).toThrow(/greater than 0/);
  expect(() => f.nll_loss(torch.tensor(-1.5), torch.tensor(0))).toThrow(/Expected 1 or more dim/);
  expect(() => f.nll_loss(x, torch.tensor([1]))).toThrow(/batch_size \(2\) to match target batch_/);
  expect(() => f.nll_loss(x, torch.tensor(1))).toThrow(/batch_size \(2\) to match target batch_/);
  const none = torch.ones([0, 3]);
  expect(await f.cross_entropy(none, none).item()).toBe(NaN);
  const one = torch.tensor(2.5);
  expect(await f.kl_div(one, one, { reduction: "batchmean", log_target: true }).item()).toBe(0);
});

test("losses of a single sample", async () => {
  const [x, weight] = [leaf([-1, -2, -3]), torch.tensor([1, 5, 2], { dtype: "float32" })];
  const ofOne = torch.tensor([1]);
  for (const target of [torch.tensor(1), ofOne]) {
    for (const [reduction, nll, cross] of [
      ["mean", 2, 1.4076058864593506],
      ["none", 10, 7.038029670715332],
    ] as const) {
      const loss = f.nll_loss(x, target, { weight, reduction });
      expect([loss.shape, await loss.item()]).toEqual([[], nll]);
      const entropy = f.cross_entropy(x, target, { weight, reduction });
      expect(entropy.shape).toEqual([]);
      expect(await entropy.item()).toBeCloseTo(cross, 5);
    }
  }
  expect(await slopes((one) => f.nll_loss(one, ofOne), x)).toEqual([[0, -1, 0]]);
  const smooth = f.cross_entropy(x, torch.tensor(1), { label_smoothing: 0.5 });
  expect(await smooth.item()).toBeCloseTo(1.4076058864593506, 5);
  expect(await f.nll_loss(x, torch.tensor(-100)).item()).toBe(NaN);
  for (const loss of [f.nll_loss, f.cross_entropy]) {
    expect(() => loss(x, torch.tensor([1, 0]))).toThrow("1D target must have size 1");
    expect(() => loss(x, torch.tensor([[1]]))).toThrow("multi-target not supported");
  }
});

test("sizes of images by one number, which a list of one is not", () => {
  const image = torch.ones([1, 1, 4, 4]);
  expect(f.interpolate(image, { size: 5 }).shape).toEqual([1, 1, 5, 5]);
  expect(f.interpolate(image, { scale_factor: 2, mode: "bilinear" }).shape).toEqual([1, 1, 8, 8]);
  expect(() => f.interpolate(image, { size: [5] })).toThrow(
    "got input with spatial dimensions of [4, 4] and output size of [5]",
  );
  expect(() => f.interpolate(image, { scale_factor: [2] })).toThrow("scale_factor of shape [1]");
});

test("pools of other sizes and dtypes", () => {
  const image = torch.ones([1, 1, 4, 4]);
  for (const pool of [f.adaptive_avg_pool2d, f.adaptive_max_pool2d]) {
    expect(pool(image, 2).shape).toEqual([1, 1, 2, 2]);
    expect(pool(image, [undefined, 2]).shape).toEqual([1, 1, 4, 2]);
    expect(() => pool(image, [2])).toThrow(/output_size must be 2/);
    expect(() => pool(image.long(), 2)).toThrow(/not implemented for 'Long'/);
  }
  const places = torch.zeros([1, 1, 2], { dtype: "int32" });
  expect(() => f.max_unpool1d(torch.ones([1, 1, 2]), places, 2)).toThrow(/should be type int64/);
});

test("tensors of other ranks and dtypes, and dimensions given twice", () => {
  const [x, row] = [torch.ones([2, 3]), torch.ones([3])];
  expect(() => torch.inner(x, torch.ones([1]))).toThrow(/last dimension must match/);
  expect(() => f.margin_ranking_loss(x, x, row)).toThrow(/should have same dimension/);
  expect(() => f.triplet_margin_loss(x, row, x)).toThrow(/anchor 2D, positive 1D, and negative 2D/);
  expect(() => torch.lerp(x, x, x.half())).toThrow(/expected dtype float32 for `weight`/);
  expect(() => torch.ones([1, 2]).squeeze([0, 0])).toThrow(/dim 0 appears multiple times/);
  expect(() => x.norm([1] as never)).toThrow(/must be Number, not a list/);
  for (const name of ["hsplit", "vsplit", "dsplit", "tensor_split", "roll"] as const) {
    expect(() => (torch[name] as (x: Tensor) => unknown)(x)).toThrow(/is missing its argument/);
  }
});

test("weights of lerp without dimensions are promoted, and tensors in place", async () => {
  const [x, end] = [torch.ones([3]), torch.tensor([3.5, 3.5, 3.5]).sub(0.5)];
  const half = torch.tensor(0.5, { dtype: "float16", requires_grad: true });
  const mixed = torch.lerp(x, end, half);
  expect(mixed.dtype).toBe("float32");
  expect(await mixed.tolist()).toEqual([2, 2, 2]);
  mixed.sum().backward();
  expect(half.grad!.dtype).toBe("float16");
  expect(await half.grad!.tolist()).toBe(6);
  expect(await x.lerp(end, torch.tensor(1)).tolist()).toEqual([3, 3, 3]);
  expect(await x.half().lerp(end.half(), torch.tensor(0.12345678)).tolist()).toEqual(
    Array(3).fill(1.2470703125),
  );
  expect(torch.lerp(torch.tensor(1).half(), torch.tensor(3).half(), torch.tensor(0.5)).dtype).toBe(
    "float32",
  );
  expect(() => x.lerp(end, torch.tensor([0.5]).half())).toThrow(/float32 for `weight`/);

  const self = torch.ones([3]);
  self.lerp_(end, torch.tensor([0, 0.5, 1]));
  expect(await self.tolist()).toEqual([1, 2, 3]);
  expect(await self.lerp_(end, torch.tensor(0.5).half()).tolist()).toEqual([2, 2.5, 3]);
  const single = torch.tensor(1).half();
  single.lerp_(torch.tensor(3).half(), torch.tensor(0.5));
  expect([single.dtype, await single.item()]).toEqual(["float16", 2]);
  expect(() => self.lerp_(end, torch.ones([2, 3]))).toThrow(/doesn't match the broadcast shape/);
});

test("seeds with fractions, and norms by name", async () => {
  torch.manual_seed(1.5);
  expect(torch.initial_seed()).toBe(1n);
  torch.manual_seed(-1);
  expect(torch.initial_seed()).toBe(2n ** 64n - 1n);
  for (const seed of [NaN, Infinity, 1e30, 2n ** 64n, -(2n ** 63n) - 1n]) {
    expect(() => torch.manual_seed(seed)).toThrow(RangeError);
  }
  const x = new nn.Parameter(torch.ones([3]));
  const clipped = async (
    ...given: [number, (number | string)?, { error_if_nonfinite?: boolean }?]
  ) => {
    x.grad = torch.tensor([3, -4, 5], { dtype: "float32" });
    const norm = await nn.utils.clip_grad_norm_(x, ...given).item();
    return [norm, ...((await x.grad.tolist()) as number[]).map((one) => Number(one.toFixed(4)))];
  };
  expect(await clipped(1, "inf")).toEqual([5, 0.6, -0.8, 1]);
  expect(await clipped(1, Infinity)).toEqual([5, 0.6, -0.8, 1]);
  expect(await clipped(1, "-inf")).toEqual([3, 1, -1.3333, 1.6667]);
  expect(await clipped(20)).toEqual([expect.closeTo(7.0711, 4), 3, -4, 5]);
  expect(await clipped(20, " 0_2.0e0 ")).toEqual(await clipped(20));
  for (const text of ["fro", "0x2", "1_", "1e", "", "2n"]) {
    expect(() => nn.utils.clip_grad_norm_(x, 1, text)).toThrow(/'norm_type' must be Number/);
  }
  expect(await clipped(1, "inf", { error_if_nonfinite: true })).toEqual([5, 0.6, -0.8, 1]);
  for (const value of [Infinity, NaN]) {
    x.grad = torch.tensor([3, value, 1.5]);
    const norm = nn.utils.clip_grad_norm_(x, 1, 2, { error_if_nonfinite: true });
    await expect(norm.item()).rejects.toThrow("The total norm of order 2 for gradients");
    expect(await x.grad.tolist()).toEqual([3, value, 1.5]);
    nn.utils.clip_grad_norm_(x, 1);
    expect(await x.grad.tolist()).toEqual(value === Infinity ? [0, NaN, 0] : [NaN, NaN, NaN]);
  }
});

test("integers beyond what a type or JavaScript's numbers hold", async () => {
  const refused = "without overflow";
  const long = 2n ** 53n + 1n;
  expect(() => torch.tensor([2 ** 31], { dtype: "int32" })).toThrow(refused);
  expect(() => torch.tensor([[-(2 ** 31) - 1]], { dtype: "int32" })).toThrow(refused);
  expect(() => torch.tensor(BigInt64Array.of(2n ** 40n), { dtype: "int32" })).toThrow(refused);
  expect(() => torch.tensor([1e30])).toThrow(refused);
  for (const value of [2n ** 63n, -(2n ** 63n) - 1n]) {
    expect(() => torch.tensor([value])).toThrow(refused);
    expect(() => torch.full([1], value)).toThrow(refused);
    expect(() => torch.arange(value, value + 1n)).toThrow(refused);
  }
  expect(await torch.tensor([2n ** 63n - 1n, -(2n ** 63n)]).tolist()).toEqual([
    ...[2n ** 63n - 1n, -(2n ** 63n)],
  ]);
  expect(() => torch.tensor([1]).add(2n ** 64n)).toThrow("int too big to convert");
  expect(() => torch.ones([1]).mul(2n ** 64n)).toThrow("int too big to convert");
  expect(() => torch.tensor([1]).add(1e30)).toThrow("int too big to convert");
  expect(await torch.ones([1]).mul(1e30).gt(1e29).tolist()).toEqual([true]);
  expect(await torch.arange(long - 1n, long + 2n).tolist()).toEqual([long - 1n, long, long + 1n]);
  expect(await torch.arange(long, long - 5n, -2).tolist()).toEqual([
    ...[long, Number(long - 2n), Number(long - 4n)],
  ]);
  expect(await torch.tensor([NaN, 0], { dtype: "bool" }).tolist()).toEqual([true, false]);
});

test("what booleans, integers and vectors are refused for", () => {
  const flags = torch.tensor([true, false]);
  for (const call of [
    () => flags.median(),
    () => flags.bitwise_left_shift(flags),
    () => torch.arange(3, { dtype: "bool" }),
  ]) {
    expect(call).toThrow(/not implemented for 'Bool'/);
  }
  const x = torch.ones([2]);
  expect(() => f.binary_cross_entropy_with_logits(x, x.long())).toThrow(/type Float can't be cast/);
  expect(() => f.prelu(x, x)).toThrow(/parameter numbers = 2 and channel size = 1/);
  expect(() => torch.zeros([2, 0]).norm(-1)).toThrow(/linalg.vector_norm/);
  expect(() => torch.ones([]).unbind()).toThrow(/tensor has no dimensions/);
  expect(() => torch.trapezoid(torch.ones([3]), x)).toThrow(/one `x` value for each sample point/);
  expect(() => f.batch_norm(torch.ones([2, 2]))).toThrow(/must be defined in evaluation mode/);
  expect(() => f.group_norm(torch.ones([1, 2]), 2)).toThrow(/more than 1 value per channel/);
});

test("indices of nothing, and such that count from the end", async () => {
  const x = torch.tensor([[1, 2], [3, 4]], { dtype: "float32", requires_grad: true }); // prettier-ignore
  const none = torch.zeros([0, 5], { dtype: "int64" });
  expect(x.gather(0, none).shape).toEqual([0, 5]);
  const src = torch.ones([1]).requires_grad_();
  const out = x.scatter_add(0, torch.zeros([0], { dtype: "int64" }), src);
  expect(await out.tolist()).toEqual([[1, 2], [3, 4]]); // prettier-ignore
  const grads = torch.autograd.grad(out.sum(), [x, src]) as [Tensor, Tensor];
  expect(await Promise.all(grads.map((grad) => grad.tolist()))).toEqual([[[1, 1], [1, 1]], [0]]); // prettier-ignore
  const row = torch.tensor([1, 2, 3]);
  expect(await row.index_fill(0, torch.tensor([0, -1]), 9).tolist()).toEqual([9, 2, 9]);
  await expect(row.index_fill(0, torch.tensor([-4]), 9).tolist()).rejects.toThrow(/out of bounds/);
  expect(await row.index_copy(0, torch.tensor(1), torch.tensor(5)).tolist()).toEqual([1, 5, 3]);
  const sums = torch.ones([3]);
  sums.scatter_(0, torch.tensor([0, 0, 2]), torch.tensor([2, 3, 4]).float(), { reduce: "add" });
  expect(await sums.tolist()).toEqual([6, 1, 5]);
  sums.scatter_(0, torch.tensor([0]), 2, { reduce: "multiply" });
  expect(await sums.tolist()).toEqual([12, 1, 5]);
  expect(() => sums.scatter(0, torch.tensor([0]), 2, { reduce: "mean" as "add" })).toThrow(
    /either add or multiply/,
  );
  expect(torch.zeros([0]).split(0).length).toBe(1);
  expect(await torch.equal(row, row.float())).toBe(true);
  expect(await f.linear(x.detach(), torch.tensor([1, 2], { dtype: "float32" })).tolist()).toEqual([
    ...[5, 11],
  ]);
});

test("batch norm of no values, and without statistics of its own", async () => {
  const norm = new nn.BatchNorm1d(2);
  norm
    .forward(torch.zeros([0, 2]))
    .sum()
    .backward();
  expect(await norm.running_var!.tolist()).toEqual([1, 1]);
  expect(await norm.weight!.grad!.tolist()).toEqual([0, 0]);
  const bare = new nn.BatchNorm1d(1, { track_running_stats: false, affine: false }).eval();
  const out = bare.forward(torch.tensor([[1], [3]], { dtype: "float32" }));
  expect(await out.round().tolist()).toEqual([[-1], [1]]);
  const empty = new nn.Conv2d(0, 2, 2);
  expect(await empty.bias!.detach().tolist()).toEqual([0, 0]);
});

test("booleans as indices, as chances and as what is filled", async () => {
  const x = torch.ones([2, 2]);
  expect(() => x.at([true, false] as never)).toThrow(/an index of booleans/);
  expect(() => x.at(true as never)).toThrow(/are valid indices, not true/);
  expect(x.at([]).shape).toEqual([0, 2]);
  for (const chance of [2, -0.5, NaN]) {
    await expect(torch.bernoulli(torch.tensor([chance, 0.5])).tolist()).rejects.toThrow(/p_in/);
  }
  expect(() => torch.randint(5, [2], { dtype: "bool" })).toThrow(
    "to - 1 is out of bounds for Bool",
  );
  expect(() => torch.randint(-1, 2, [2], { dtype: "bool" })).toThrow("from is out of bounds");
  expect(() => torch.randint(2 ** 40, [2], { dtype: "int32" })).toThrow(/out of bounds for Int/);
  const flags = torch.tensor([false, false]);
  const filled = flags.masked_fill(torch.tensor([true, false]), NaN);
  expect(await filled.tolist()).toEqual([true, false]);
  expect(await torch.full([1], NaN, { dtype: "bool" }).tolist()).toEqual([true]);
  expect(() => torch.ones([]).flatten(1)).toThrow(/Dimension out of range/);
  const y = x.requires_grad_().mul(2);
  expect(y.requires_grad_()).toBe(y);
  expect(() => y.requires_grad_(false)).toThrow(/leaf variables/);
  const attention = new nn.MultiheadAttention(2, 1, { batch_first: true });
  const three = torch.ones([2, 3, 2]);
  expect(() => attention.forward(three, three.narrow(0, 0, 1), three)).toThrow(
    /one size of the batch/,
  );
});

test("negative repeats, indices of another rank, and products of nothing", async () => {
  const x = torch.ones([2, 3]);
  for (const call of [() => x.repeat(-1, 1), () => torch.ones([]).repeat(3, -1)]) {
    expect(call).toThrow(/negative dimension/);
  }
  expect(() => x.gather(0, torch.tensor(0))).toThrow(/same number of dimensions/);
  expect(() => x.scatter(0, torch.tensor(0), 1)).toThrow(/same number of dimensions/);
  expect(() => torch.ones([]).gather(0, torch.tensor([[0]]))).toThrow(/number of dimensions/);
  expect(await torch.arange(3).gather(0, torch.tensor(2)).tolist()).toBe(2);
  expect(await torch.arange(3).scatter(0, torch.tensor(2), 9).tolist()).toEqual([0, 1, 9]);
  expect(() => x.long().take_along_dim(torch.zeros([1, 2, 3]).long(), 1)).toThrow(/3 dimensions/);
  const none = torch.zeros([3, 0]).requires_grad_();
  const [grad] = torch.autograd.grad(none.prod(1).sum(), none);
  expect(grad!.shape).toEqual([3, 0]);
  expect(() => (f.layer_norm as (x: Tensor) => Tensor)(x)).toThrow(/missing its argument/);
});

test("cosine similarity of other dtypes", async () => {
  const [x, y] = [torch.tensor([3, 4]), torch.tensor([4, 3], { dtype: "float32" })];
  expect(await f.cosine_similarity(x, y, 0).item()).toBeCloseTo(0.96, 6);
  expect(() => f.cosine_similarity(x, x, 0)).toThrow(/common dtype is Long/);
});

test("adaptive pooling of no values", () => {
  const none = torch.zeros([1, 1, 0, 3]);
  for (const pool of [f.adaptive_avg_pool2d, f.adaptive_max_pool2d]) {
    expect(() => pool(none, 2)).toThrow(/with dimension 2 being empty/);
    expect(pool(torch.zeros([0, 1, 3, 3]), 2).shape).toEqual([0, 1, 2, 2]);
  }
});

test("a module that is cast before its gradient", () => {
  const layer = new nn.LayerNorm(2);
  const loss = layer.forward(torch.ones([1, 2]).requires_grad_()).sum();
  layer.half();
  expect(() => {
    loss.backward();
  }).toThrow(/belongs to a module that was cast/);
});

test("which tensors autograd.grad takes", async () => {
  const x = torch.tensor([1, 2], { dtype: "float32", requires_grad: true });
  const y = x.mul(2);
  const [grad] = torch.autograd.grad(y, x, torch.tensor([1, 3], { dtype: "float32" }));
  expect(await grad!.tolist()).toEqual([2, 6]);
  expect(() => torch.autograd.grad(x.sum(), [])).toThrow(/cannot be empty/);
  expect(() => torch.autograd.grad(x.sum(), [x.detach()], undefined, { allow_unused: true })).toThrow(/does not require grad/); // prettier-ignore
});

test("booleans and bigints are numbers of arange", async () => {
  const counted = torch.arange(false, true, true);
  expect([counted.dtype, await counted.tolist()]).toEqual(["int64", [0]]);
  expect(await torch.arange(3n).tolist()).toEqual([0, 1, 2]);
});

test("zeros keep their sign", async () => {
  const zeros = torch.tensor([0, -0], { dtype: "float32" });
  for (const call of [torch.sin, torch.tan, torch.sinh, torch.asin, torch.atan, torch.tanh]) {
    expect(await call(zeros).tolist()).toEqual([0, -0]);
  }
  expect(await slopes(torch.cos, leaf([-0]))).toEqual([[0]]);
});

test("tensordot of other dtypes and dimensions", () => {
  const x = torch.ones([2, 2]);
  const [int32, int64] = [x.int(), x.long()];
  expect(() => torch.tensordot(int32, int64, 1)).toThrow("both inputs should have same dtype");
  expect(() => torch.tensordot(int32, x, 0)).toThrow("both inputs should have same dtype");
  expect(torch.tensordot(int32, int32, 1).dtype).toBe("int32");
  expect(() => torch.tensordot(x, x, 3)).toThrow("dims < ndim_a or ndim_b, but got dims=3");
  expect(() => torch.einsum("ij,jk->ik->", x, x)).toThrow(/invalid subscript/);
  expect(() =>
    torch.tensordot(x, x, [
      [0, 0],
      [1, 0],
    ]),
  ).toThrow(/dim 0 appears multiple times/);
});

test("reductions of nothing, and indices that do not fit", async () => {
  const none = torch.ones([0, 2]);
  expect(await none.logsumexp(0).tolist()).toEqual([-Infinity, -Infinity]);
  expect(await none.median().item()).toBe(NaN);
  const x = torch.ones([3, 2]);
  expect(() => x.norm("nuc" as "fro")).toThrow(/the order nuc/);
  expect(() => x.flip(0, -2)).toThrow(/multiple times/);
  expect(() => x.index_copy(0, torch.tensor([0, 1]), x)).toThrow(/Number of indices \(2\)/);
  expect(await f.one_hot(torch.tensor([[2], [0]]), 3).tolist()).toEqual([[[0, 0, 1]], [[1, 0, 0]]]);
  await expect(f.one_hot(torch.tensor([0, 2]), 2).tolist()).rejects.toThrow(/out of bounds/);
});

test("windows without a step, images without a batch, and states that are missing", async () => {
  const x = torch.arange(16, { dtype: "float32" }).reshape(1, 4, 4);
  expect(() => f.max_pool2d(x, 2, 2, 0, 0)).toThrow(/dilation should be at least 1/);
  expect(() => f.avg_pool2d(x, 2, 2, -1)).toThrow(/padding should be at least 0/);
  expect(() => f.unfold(x, 0)).toThrow(/kernel should be at least 1/);
  const columns = f.unfold(x, 2, 1, 0, 2);
  expect(columns.shape).toEqual([4, 4]);
  expect(await torch.equal(f.fold(columns, 4, 2, 1, 0, 2), x)).toBe(true);
  const states = torch.zeros([1, 2, 4]);
  const input = torch.ones([2, 2, 3]);
  for (const given of [states, [states]]) {
    expect(() => new nn.LSTM(3, 4).forward(input, given as never)).toThrow(/expected hx to be/);
    expect(() => new nn.LSTMCell(3, 4).forward(input.select(0, 0), given as never)).toThrow(
      /expected hx to be/,
    );
  }
  expect(() => new nn.GroupNorm(2, 3)).toThrow(/must be divisible by num_groups/);
  expect(await f.linear(torch.ones([2, 0]), torch.ones([1, 0])).tolist()).toEqual([[0], [0]]);
});

test("batch norm of other ranks, and averages of all batches", () => {
  expect(() => new nn.BatchNorm1d(3).forward(torch.ones([2, 3, 4, 4]))).toThrow(
    /expected 2D or 3D input \(got 4D input\)/,
  );
  expect(() => new nn.BatchNorm2d(3).forward(torch.ones([2, 3, 4]))).toThrow(/expected 4D input/);
  const momentum = null as unknown as number;
  expect(() => new nn.BatchNorm2d(3, { momentum })).toThrow(/average of all batches/);
  expect(() => new nn.InstanceNorm2d(3, { momentum })).toThrow(/average of all batches/);
});

test("masked_fill_ with a tensor is not recorded either", () => {
  const x = torch.ones([2], { requires_grad: true });
  expect(() => x.masked_fill_(x.gt(0), torch.tensor(3))).toThrow(/leaf Variable that requires/);
  const y = x.mul(2);
  expect(() => y.masked_fill_(x.gt(0), torch.tensor(3))).toThrow(/while gradients are recorded/);
});

test("numbers that a type cannot hold", async () => {
  const refused = "without overflow";
  expect(() => torch.full([2], 2 ** 40, { dtype: "int32" })).toThrow(refused);
  expect(() => torch.full([2], 1e39, { dtype: "float32" })).toThrow(refused);
  expect(() => torch.zeros([2], { dtype: "int32" }).fill_(-(2 ** 31) - 1)).toThrow(refused);
  expect(await torch.full([1], -(2 ** 31), { dtype: "int32" }).tolist()).toEqual([-(2 ** 31)]);
  expect(await torch.full([1], -Infinity, { dtype: "float32" }).tolist()).toEqual([-Infinity]);
  expect(await torch.full([1], 1e30, { dtype: "float16" }).tolist()).toEqual([Infinity]);
});

test("the numbers of operators beside tensors, by the type that is computed in", async () => {
  const refused = "without overflow";
  const whole = torch.tensor([1, 2], { dtype: "int32" });
  const x = torch.tensor([1, 2], { dtype: "float32" });
  expect(() => whole.clamp(2 ** 40)).toThrow(refused);
  expect(() => whole.clamp(undefined, 2 ** 40)).toThrow(refused);
  expect(await whole.clamp(1.5).tolist()).toEqual([1.5, 2]);
  expect(() => whole.add(whole, { alpha: 2 ** 40 })).toThrow(refused);
  expect(() => whole.masked_fill(whole.gt(1), 2 ** 40)).toThrow(refused);
  expect(() => x.lerp(x, 1e39)).toThrow(refused);
  expect(() => f.threshold(x, 1e39, 0)).toThrow(refused);
  expect(await x.masked_fill(x.gt(1), Infinity).tolist()).toEqual([1, Infinity]);
  // Operands are converted, whatever they are.
  expect(await x.mul(1e39).tolist()).toEqual([Infinity, Infinity]);
  expect(await torch.tensor([NaN]).nan_to_num(1e39).tolist()).toEqual([Infinity]);
});

test("windows of max pooling that lie wholly in the padding", async () => {
  // Of the window's places, -1 and 3, none is in the image.
  const x = leaf([[0, 1, 2]]);
  expect(await f.max_pool1d(x, 2, 3, 1, 4).tolist()).toEqual([[-Infinity]]);
  expect(await slopes((one) => f.max_pool1d(one, 2, 3, 1, 4), x)).toEqual([[[0, 0, 0]]]);
  const image = torch.arange(18, { dtype: "float32" }).reshape(1, 2, 3, 3).requires_grad_();
  const [first] = torch.autograd.grad(f.max_pool2d(image, 2, 3, 1, 4).sum(), [image], undefined, {
    create_graph: true,
  }) as [Tensor];
  expect(await first.abs().sum().item()).toBe(0);
  // The second gradient is that of a gather.
  const y = leaf([[1, 3, 2, 0]]);
  const scale = leaf([[2, 5]]);
  const [slope] = torch.autograd.grad(f.max_pool1d(y, 2).mul(scale).sum(), [y], undefined, {
    create_graph: true,
  }) as [Tensor];
  expect(await slope.tolist()).toEqual([[0, 2, 5, 0]]);
  const weight = torch.tensor([[1, 2, 3, 4]]);
  const [of] = torch.autograd.grad(slope.mul(weight).sum(), [scale]) as [Tensor];
  expect(await of.tolist()).toEqual([[2, 3]]);
});

test("the second gradient of log_ndtr", async () => {
  const values = [-20, -1, 0, 1e-3, 5, 10, 12, 13];
  const expected = [
    ...[-0.9975367383972866, -0.8009024344296533, -0.6366197723675815, -0.6364026372687722],
    ...[-7.433601914860709e-6, -7.694598626706419e-22, -2.5756604827956727e-31],
    ...[-1.0398476084108857e-36],
  ];
  const found = (await curvature(torch.special_log_ndtr, values)) as number[];
  found.forEach((value, k) => {
    // Left of zero the derivative of erfcx is a difference of large numbers, as in PyTorch.
    expect(Math.abs(value / expected[k]! - 1)).toBeLessThan(k === 0 ? 5e-3 : 1e-5);
  });
  expect(await slopes(torch.special_log_ndtr, leaf([NaN, Infinity, -Infinity]))).toEqual([
    [NaN, 0, Infinity],
  ]);
});

test("values that only the GPU knows are refused at the next await", async () => {
  const [low, one] = [leaf([0.5, -0.1]), leaf([0.5, 1])];
  await expect(f.binary_cross_entropy(low, one).item()).rejects.toThrow(
    "all elements of input should be between 0 and 1",
  );
  await expect(f.binary_cross_entropy(one, one.add(1)).item()).rejects.toThrow(
    "all elements of target should be between 0 and 1",
  );
  await expect(f.gaussian_nll_loss(one, one, low).item()).rejects.toThrow("var has negative");
  // What was refused leaves nothing behind.
  expect(await f.binary_cross_entropy(leaf([0.5]), leaf([1])).item()).toBeCloseTo(Math.log(2), 6);
});

test("numbers of layers, sizes and rows that do not exist", async () => {
  const loose = (value: number) => value as never;
  expect(() => new nn.LSTM(3, 4, { num_layers: 1.5 })).toThrow("must be int, not 1.5");
  expect(() => new nn.GRU(3, 4.5)).toThrow("argument 'hidden_size' (position 2) must be int");
  expect(() => new nn.RNNCell(1.5, 4)).toThrow("argument 'input_size'");
  expect(() => new nn.Transformer({ batch_first: true, nhead: 1.5 })).toThrow("argument 'nhead'");
  expect(() => f.local_response_norm(torch.ones([1, 2, 3]), 0)).toThrow(/at least 1/);
  expect(() => f.local_response_norm(torch.ones([1, 2, 3]), 1.5)).toThrow("must be int");
  expect(() => new nn.Embedding(3, 4, { padding_idx: 3 })).toThrow(/within num_embeddings/);
  expect(() => f.embedding(torch.tensor([0]), torch.ones([3, 4]), -4)).toThrow(/num_embeddings/);
  const [x, places] = [torch.ones([1, 1, 2]), torch.tensor([[[0, 3]]])];
  expect(f.max_unpool1d(x, places, 2, 2, 0, [5]).shape).toEqual([1, 1, 5]);
  expect(new nn.MaxUnpool1d(2).forward(x, places, [1, 1, 5]).shape).toEqual([1, 1, 5]);
  expect(() => f.max_unpool1d(x, places, 2, 2, 0, [6])).toThrow(/dim 0 must be between 2 and 6/);
  expect(() => f.max_unpool1d(x, places, 2, 2, 0, [1, 5])).toThrow(/1 or 3 elements/);
  expect(() => torch.sum(x, loose(0.5))).toThrow("must be int or a list of ints, not 0.5");
  // This would never end.
  expect(() => torch.tril_indices(2, Infinity)).toThrow(TypeError);
  expect(torch.tril_indices(2 ** 40, 0).shape).toEqual([2, 0]);
});

test("arguments of the wrong kind, or none", () => {
  const x = torch.ones([2]);
  const loose = torch as unknown as Record<string, (...args: unknown[]) => unknown>;
  expect(() => loose.cos!(2)).toThrow("cos(): argument 'input' (position 1) must be Tensor, not 2");
  expect(() => loose.add!(x)).toThrow("add(input, other, { alpha }) is missing its argument other");
  expect(() => loose.add!(x, [1])).toThrow("must be Tensor or Number, not [1]");
  expect(() => loose.add!(x, x, { alpha: x })).toThrow("'alpha' must be Number, not Tensor");
  expect(() => loose.cat!([x, 1])).toThrow("argument 'tensors' (position 1) must be a list");
  expect(() => loose.sum!(x, 0, 1)).toThrow("'keepdim' (position 3) must be bool, not 1");
  expect(() => loose.sum!(x, null)).toThrow("must be int or a list of ints, not null");
  for (const one of ["3", null, undefined, {}]) {
    expect(() => torch.tensor([1, one] as never)).toThrow(/tensor\(\): numbers and lists of them/);
    expect(() => torch.manual_seed(one as never)).toThrow(TypeError);
    expect(() => new nn.Parameter(one as never)).toThrow("'data' must be Tensor");
    expect(() => torch.arange(one as never)).toThrow(TypeError);
  }
  for (const one of ["3", [[2]], null]) {
    expect(() => torch.arange(0, one as never)).toThrow(TypeError);
    expect(() => nn.utils.clip_grad_norm_([x], one as never)).toThrow(
      /'max_norm' \(position 2\) must be Number/,
    );
    expect(() => x.requires_grad_(one as never)).toThrow(/'requires_grad' must be bool/);
    expect(() => new nn.Linear(1, 1).train(one as never)).toThrow(/expected to be boolean/);
    expect(() => x.sum().backward(one as never)).toThrow(/'gradient' .* must be Tensor/);
    expect(() => f.interpolate(torch.ones([1, 1, 2]), { scale_factor: one as never })).toThrow();
  }
  // Those of two tensors take no number, where arithmetic and comparisons do.
  for (const name of [
    ...["atan2", "fmax", "fmin", "gcd", "heaviside", "hypot", "lcm", "logaddexp", "logaddexp2"],
    ...["logical_and", "logical_or", "logical_xor", "maximum", "minimum", "nextafter", "arctan2"],
  ]) {
    for (const other of [2, true]) {
      expect(() => loose[name]!(x, other)).toThrow(/'other' \(position 2\) must be Tensor, not/);
    }
    const methods = x as unknown as Record<string, (other: number) => unknown>;
    expect(() => methods[name]!(2)).toThrow(TypeError);
  }
  expect(() => x.long().gcd_(2 as never)).toThrow(TypeError);
  expect(() => x.atan2_(2 as never)).toThrow(TypeError);
  expect(() => (x as unknown as { mm: () => void }).mm()).toThrow("is missing its argument mat2");
});

test("adaptive pooling without channels", async () => {
  const sized = (n: number): Tensor => torch.zeros([2, 0, 3, 3, 3].slice(0, n + 2));
  const x = sized(2).requires_grad_();
  f.adaptive_avg_pool2d(x, 2).sum().backward();
  expect(x.grad!.shape).toEqual([2, 0, 3, 3]);
  expect(f.adaptive_avg_pool2d(x, 2).shape).toEqual([2, 0, 2, 2]);
  expect(f.adaptive_avg_pool1d(sized(1), 2).shape).toEqual([2, 0, 2]);
  expect(f.adaptive_avg_pool2d(torch.zeros([0, 3, 3]), 2).shape).toEqual([0, 2, 2]);
  const refused = /non-zero size for non-batch dimensions.* with dimension 1 being empty/;
  expect(() => f.adaptive_avg_pool3d(sized(3), 2)).toThrow(refused);
  expect(() => f.adaptive_max_pool1d(sized(1), 2)).toThrow(refused);
  expect(() => f.adaptive_max_pool2d(sized(2), 2)).toThrow(refused);
  expect(() => f.adaptive_avg_pool2d(torch.zeros([2, 0, 0, 3]), 2)).toThrow(/dimension 2 being/);
  await torch.synchronize();
});

test("places of errors", async () => {
  const x = torch.ones([3]);
  for (const [equation, at] of [
    ...[["i->->", 3], ["i->i,", 4], ["i#->", 1], ["i- >i", 1], ["i>-i", 1], [" i -> #", 6]], // prettier-ignore
  ] as [string, number][]) {
    expect(() => torch.einsum(equation, x)).toThrow(`invalid subscript given at index ${at} in`);
  }
  expect(() => torch.einsum("i..->i", x)).toThrow("found '.' for operand 0 that is not part");
  expect(() => torch.einsum("i->i.", x)).toThrow("found '.' for output that is not part");
  torch.ones([1]).index_fill(0, torch.tensor([-2]), 1);
  await expect(torch.synchronize()).rejects.toThrow("index -2 is out of bounds");
  const filled = torch.zeros([3]).index_fill(0, torch.tensor([-1, 0]), 1);
  expect(await filled.tolist()).toEqual([1, 0, 1]);
});

test("numbers that a half has not, and lists that select", async () => {
  const half = { dtype: "float16" } as const;
  expect(() => torch.randint(0, 65510, [2], half)).toThrow("to - 1 is out of bounds for Half");
  expect(() => torch.randint(-65510, 5, [2], half)).toThrow("from is out of bounds for Half");
  expect(torch.randint(0, 65505, [2], half).shape).toEqual([2]);
  const x = torch.tensor([1, 2, 3]);
  for (const places of [new Int32Array([2, 0]), new BigInt64Array([2n, 0n]), [2, 0]]) {
    expect(await x.at(places).tolist()).toEqual([3, 1]);
  }
  expect(() => x.at(new Float32Array([1]) as never)).toThrow(/are valid indices, not 1/);
});

test("exact halves of printed numbers round to even", async () => {
  expect(await torch.tensor([34.5625, 1e-5]).repr()).toBe("tensor([3.4562e+01, 1.0000e-05])");
  expect(await torch.tensor([34.4375, 33.546875, 1e-5, -34.5625]).repr()).toBe(
    "tensor([ 3.4438e+01,  3.3547e+01,  1.0000e-05, -3.4562e+01])",
  );
  expect(await torch.tensor([1.00005e5, 100015, 7.62939453125e-6]).repr()).toBe(
    "tensor([1.0000e+05, 1.0002e+05, 7.6294e-06])",
  );
});

test("gradients ask only for the tensors that they need", async () => {
  const places = torch.tensor([0, 1]);
  const source = torch.ones([2]);
  for (const call of [
    (x: Tensor) => x.scatter_add(0, places, source),
    (x: Tensor) => x.index_add(0, places, source),
    (x: Tensor) => x.index_put([places], source, true),
    (x: Tensor) => x.scatter_reduce(0, places, source, "sum"),
  ]) {
    const x = leaf([1, 2, 3]);
    const out = call(x);
    places.add_(0);
    out.sum().backward();
    expect(await x.grad!.tolist()).toEqual([1, 1, 1]);
  }
  const both = torch.zeros([2]).scatter_add(0, places, leaf([1, 2]));
  places.add_(0);
  expect(() => both.sum().backward()).toThrow(/modified by an inplace operation/);
});

test("zeroed gradients are the same Tensor", async () => {
  const x = leaf([1, 2]);
  x.mul(3).sum().backward();
  const { grad } = x;
  const optimizer = new optim.SGD([x], { lr: 1 });
  optimizer.zero_grad(false);
  expect(x.grad).toBe(grad);
  expect(await grad!.tolist()).toEqual([0, 0]);
  x.mul(3).sum().backward();
  expect(await grad!.tolist()).toEqual([3, 3]);
});

test("parts of one memory that lie apart are copied without another copy", async () => {
  const x = torch.arange(6);
  const allocate = vi.spyOn(runtime(), "allocate");
  x.slice(0, 0, 3).copy_(x.slice(0, 3, 6));
  expect(allocate).not.toHaveBeenCalled();
  allocate.mockRestore();
  expect(await x.tolist()).toEqual([3, 4, 5, 3, 4, 5]);
  x.view(2, 3)
    .slice(1, 0, 2)
    .copy_(x.view(2, 3).slice(1, 1, 3));
  expect(await x.tolist()).toEqual([4, 5, 5, 4, 5, 5]);
});

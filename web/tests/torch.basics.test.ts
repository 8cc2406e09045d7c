import { beforeAll, expect, test } from "vitest";
import {
  NotImplementedError,
  Slice,
  nn,
  safetensors,
  torch,
  type DType,
  type Nested,
  type Tensor,
} from "../torch";
import { bytesOf, jsonOf } from "./torch/files";
import { initTorch } from "./torch/gpu";

beforeAll(initTorch);

test("factories and reading back", async () => {
  expect(
    await torch
      .tensor([
        [1, 2.5],
        [3, -4],
      ])
      .tolist(),
  ).toEqual([
    [1, 2.5],
    [3, -4],
  ]);
  expect(torch.tensor([1, 2]).dtype).toBe("int64");
  expect(torch.tensor([true, false]).dtype).toBe("bool");
  expect(await torch.zeros([2, 3]).tolist()).toEqual([
    [0, 0, 0],
    [0, 0, 0],
  ]);
  expect(await torch.full([3], 7, { dtype: "float16" }).tolist()).toEqual([7, 7, 7]);
  expect(await torch.full([3], true).tolist()).toEqual([true, true, true]);
  expect(await torch.full([2], -(2n ** 40n)).tolist()).toEqual([-(2 ** 40), -(2 ** 40)]);
  expect(await torch.arange(2, 9, 3).tolist()).toEqual([2, 5, 8]);
  expect(await torch.eye(2).tolist()).toEqual([
    [1, 0],
    [0, 1],
  ]);
});

test("bytes in memory that is shared with workers", async () => {
  const shared = new Float32Array(new SharedArrayBuffer(8)).fill(1.5);
  expect(await torch.tensor(shared).tolist()).toEqual([1.5, 1.5]);
  const bytes = new Uint8Array(shared.buffer);
  expect(await torch.from_bytes(bytes, [2], "float32").tolist()).toEqual([1.5, 1.5]);
});

test("arithmetic with broadcasting and views", async () => {
  const x = torch.arange(6, { dtype: "float32" }).reshape(2, 3);
  expect(
    await x
      .t()
      .add(torch.tensor([10, 20]))
      .tolist(),
  ).toEqual([
    [10, 23],
    [11, 24],
    [12, 25],
  ]);
  expect(await x.at(1, new Slice(1)).tolist()).toEqual([4, 5]);
  expect(await x.mul(2).sum().item()).toBe(30);
  expect(await x.sum(0).tolist()).toEqual([3, 5, 7]);
  expect(await x.matmul(x.t()).tolist()).toEqual([
    [5, 14],
    [14, 50],
  ]);
  expect(await x.gt(2).tolist()).toEqual([
    [false, false, false],
    [true, true, true],
  ]);
});

test("gradients", async () => {
  const x = torch.tensor([1, 2, 3], { dtype: "float32", requires_grad: true });
  x.mul(x).sum().backward();
  expect(await x.grad!.tolist()).toEqual([2, 4, 6]);
});

test("tensors print as PyTorch prints them", async () => {
  const { prints } = jsonOf<{ prints: string[] }>("training.json");
  const tensors = safetensors.load(bytesOf("prints.safetensors"));
  for (const [k, text] of prints.entries()) {
    expect(await tensors.get(String(k))!.repr()).toBe(text);
  }
});

test("dtypes promote as in PyTorch", async () => {
  type Given = [string, Nested];
  const { promotions } = jsonOf<{ promotions: [string, Given, Given, [string, Nested]][] }>(
    "training.json",
  );
  const operand = ([dtype, values]: Given): unknown =>
    dtype === "number" ? values : torch.tensor(values, { dtype: dtype as DType });
  const failed: string[] = [];
  for (const [op, a, b, expected] of promotions) {
    const call = (torch as unknown as Record<string, (x: unknown, y: unknown) => Tensor>)[op]!;
    const out = call(operand(a), operand(b));
    const plain = out.dtype === "bool" ? out.int() : out.float().nan_to_num(99, 98);
    const actual = [out.dtype, await plain.tolist()];
    if (JSON.stringify(actual) !== JSON.stringify(expected)) {
      failed.push(`${op} ${JSON.stringify([a, b, expected, actual])}`);
    }
  }
  expect(failed.join("\n")).toBe("");
});

test("a gradient of a gradient", async () => {
  const x = torch.tensor([0.5, -1.25, 2], { requires_grad: true });
  const [first] = torch.autograd.grad(x.sin().mul(x).sum(), [x], undefined, { create_graph: true });
  const [second] = torch.autograd.grad(first!.sum(), [x]);
  // (x sin x)'' = 2 cos x - x sin x
  const expected = x.detach().cos().mul(2).sub(x.detach().sin().mul(x.detach()));
  expect(Number(await second!.sub(expected).abs().max().item())).toBeLessThan(1e-5);
});

test("what would give wrong gradients raises", () => {
  const x = torch.ones([3], { requires_grad: true });
  expect(() => x.add_(1)).toThrow(/leaf Variable that requires grad/);
  const y = x.mul(2);
  expect(() => y.add_(1)).toThrow(NotImplementedError);
  const base = torch.ones([3]);
  const product = x.mul(base).sum();
  base.add_(1);
  expect(() => {
    product.backward();
  }).toThrow(/modified by an inplace operation/);
  const loss = x.mul(2).sum();
  loss.backward();
  expect(() => {
    loss.backward();
  }).toThrow(/backward through the graph a second time/);
});

test("bad input is PyTorch's own error, and the device stays usable", async () => {
  const a = torch.ones([2, 3]);
  expect(() => a.add(torch.ones([2]))).toThrow(/The size of tensor a \(3\) must match/);
  expect(() => a.matmul(a)).toThrow(/mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)/);
  expect(() => torch.ones([2], { dtype: "int64" }).add_(0.5)).toThrow(/can't be cast/);
  expect(() => torch.ones([2], { dtype: "float64" as "float32" })).toThrow(/float64/);
  expect(() => torch.ones([2], { dtype: "bool" }).sub(true)).toThrow(/with a bool tensor/);
  expect(() => torch.arange(3).softmax(0)).toThrow(NotImplementedError);
  expect(() => a.t().view(6)).toThrow(/view size is not compatible/);
  expect(() => a.expand(2, 4)).toThrow(/expanded size of the tensor/);
  const picked = a.index_select(0, torch.tensor([5]));
  await expect(picked.tolist()).rejects.toThrow(
    /index 5 is out of bounds for dimension 0 with size 2/,
  );
  expect(await a.sum().item()).toBe(6);
});

test("memory is used again", async () => {
  const x = torch.ones([64, 64]);
  let used = 0;
  for (let k = 0; k < 200; k++) {
    const value = torch.scope(() => x.mul(2).add(1).sum());
    if (k % 50 === 0) {
      expect(await value.item()).toBe(64 * 64 * 3);
    }
    value.dispose();
    if (k === 1) {
      used = torch.memory().used + torch.memory().free;
    }
  }
  expect(torch.memory().used + torch.memory().free).toBeLessThanOrEqual(used);
});

test("views write into their base", async () => {
  const x = torch.zeros([3, 4], { dtype: "float16" });
  x.at(1).add_(1);
  x.t().at(new Slice(1, 3)).mul_(3);
  x.at("...", 0).copy_(torch.tensor([7, 8, 9]));
  expect(await x.tolist()).toEqual([
    [7, 0, 0, 0],
    [8, 3, 3, 1],
    [9, 0, 0, 0],
  ]);
  expect(() => torch.ones([1]).expand(3).add_(1)).toThrow(/single memory location/);
});

test("a name that does not exist is an error that names it", () => {
  expect(() => (torch as unknown as { fft: unknown }).fft).toThrow(NotImplementedError);
  expect(() => (torch as unknown as { fft: unknown }).fft).toThrow(/torch\.fft/);
});

test("results that are no views have memory of their own, without gaps", async () => {
  const x = torch.tensor([
    [3, 1, 2],
    [6, 5, 4],
  ]);
  const column = x.select(1, 0);
  const flat = column.ravel();
  expect(flat.strides).toEqual([1]);
  flat.zero_();
  expect(await column.tolist()).toEqual([3, 6]);
  expect(torch.ravel(x).storage).toBe(x.storage);
  for (const keepdim of [false, true]) {
    const { values, indices } = x.kthvalue(2, 1, keepdim);
    for (const one of [values, indices]) {
      expect([one.is_contiguous(), one.storage_offset]).toEqual([true, 0]);
      expect(one.storage.bytes).toBe(16);
    }
    expect(await values.reshape(-1).tolist()).toEqual([2, 5]);
  }
});

test("operators that would change nothing still give memory of its own", () => {
  const f = nn.functional;
  const x = torch.ones([1, 1, 2, 2]);
  for (const out of [
    ...[f.pixel_shuffle(x, 1), f.pixel_unshuffle(x, 1), f.channel_shuffle(x, 1)],
    ...[x.matrix_power(1), x.repeat(1, 1, 1, 1), x.flip([]), x.roll(0), f.pad(x, [0, 0])],
  ]) {
    expect(out.storage).not.toBe(x.storage);
  }
});

test("softmax of integers names the dimension first, as PyTorch does", () => {
  const x = torch.tensor([1, 2, 3]);
  expect(() => x.softmax(1)).toThrow(RangeError);
  expect(() => x.softmax(0)).toThrow("not implemented for 'Long'");
});

test("operators that write a tensor whose memory their operands share", async () => {
  const range = (size: number, dtype: "float32" | "int64" = "float32"): Tensor =>
    torch.arange(size, { dtype });
  const shared = /some elements of the input tensor and the written-to tensor refer to a single/;
  const parts = (): [Tensor, Tensor] => {
    const whole = range(6);
    return [whole.slice(0, 1, 6), whole.slice(0, 0, 5)];
  };
  const elementwise: ((out: Tensor, other: Tensor) => unknown)[] = [
    (out, other) => out.lerp_(other, 0.5),
    (out, other) => out.lerp_(torch.ones([5]), other),
    (out, other) => out.add_(other),
    (out, other) => out.mul_(other.select(0, 2)),
    (out, other) => out.addcmul_(other, other),
    (out, other) => out.clamp_(other),
    (out, other) => out.eq_(other),
    (out, other) => out.hypot_(other),
    (out, other) => out.copy_(other),
    (out, other) => out.index_add_(0, torch.arange(5), other),
    (out, other) => out.index_copy_(0, torch.arange(5), other),
    (out, other) => out.scatter_(0, torch.arange(5), other),
    (out, other) => out.scatter_add_(0, torch.arange(5), other),
    (out, other) => out.scatter_reduce_(0, torch.arange(5), other, "sum"),
    (out, other) => out.index_put_([torch.arange(5)], other),
  ];
  for (const call of elementwise) {
    const [out, other] = parts();
    expect(() => call(out, other), String(call)).toThrow(shared);
    expect(await other.tolist()).toEqual([0, 1, 2, 3, 4]);
  }
  const square = range(9).view(3, 3);
  expect(() => square.add_(square.t())).toThrow(shared);
  // Those that write in any order take no operand that is the written tensor itself.
  const places = range(4, "int64");
  const back = torch.tensor([3, 2, 1, 0]);
  expect(() => places.scatter_(0, places, back)).toThrow(shared);
  expect(() => places.scatter_(0, back, places)).toThrow(shared);
  expect(() => places.scatter_add_(0, back, places)).toThrow(shared);
  expect(() => places.index_put_([places], back)).toThrow(shared);
  expect(() => places.index_fill_(0, places.slice(0, 0, 2), 7)).toThrow(shared);
  const flags = torch.tensor([true, false, true]);
  expect(() => flags.slice(0, 1, 3).masked_fill_(flags.slice(0, 0, 2), true)).toThrow(shared);
  // What is the same element by element, what lies apart, and what interleaves.
  expect(await range(3).add_(range(3)).tolist()).toEqual([0, 2, 4]);
  const same = range(3);
  expect(await same.add_(same.view(3)).tolist()).toEqual([0, 2, 4]);
  const whole = range(6, "int64");
  whole.slice(0, 0, 3).add_(whole.slice(0, 3, 6));
  expect(await whole.tolist()).toEqual([3, 5, 7, 3, 4, 5]);
  whole.slice(0, 0, 6, 2).scatter_(0, torch.tensor([2, 1, 0]), whole.slice(0, 1, 6, 2));
  expect(await whole.tolist()).toEqual([5, 5, 3, 3, 5, 5]);
  const table = range(9).view(3, 3);
  table.sub_(table.slice(1, 1, 2));
  expect(await table.tolist()).toEqual([[-1, 0, 1], [-1, 0, 1], [-1, 0, 1]]); // prettier-ignore
});

test("a tensor that has an element twice is filled, and nothing else is written there", async () => {
  const twice = torch.ones([1]).expand(3);
  expect(await twice.fill_(2).tolist()).toEqual([2, 2, 2]);
  expect(await twice.zero_().tolist()).toEqual([0, 0, 0]);
  const windows = torch.zeros([4]).unfold(0, 2, 1);
  for (const call of [() => windows.add_(1), () => windows.copy_(torch.ones([3, 2]))]) {
    expect(call).toThrow(/more than one element of the written-to tensor/);
  }
  // Strides that interleave and never meet.
  const woven = torch.zeros([9]).as_strided([2, 3], [2, 3]);
  expect(await woven.add_(1).sum().item()).toBe(6);
});

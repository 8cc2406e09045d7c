// Convolutions whose operands and results fit into the device's bindings run, however large the columns of their images are.
import { expect, test } from "vitest";
import { torch, type Tensor } from "../torch";
import { cpuDevice } from "./cpu/device";

const LIMIT = 1 << 14;

// A sum of products, element by element.
function reference(
  x: number[][][],
  w: number[][][],
  padding: number,
  groups: number,
): number[][][] {
  const ins = w[0]!.length;
  const outs = w.length / groups;
  return x.map((image) =>
    w.map((filter, o) => {
      const first = Math.floor(o / outs) * ins;
      const length = image[0]!.length + 2 * padding - filter[0]!.length + 1;
      return Array.from({ length }, (_, place) =>
        filter.reduce(
          (sum, taps, c) =>
            taps.reduce(
              (part, tap, k) => part + tap * (image[first + c]![place + k - padding] ?? 0),
              sum,
            ),
          0,
        ),
      );
    }),
  );
}

const small = (shape: number[]): Tensor => torch.randint(-3, 4, shape, { dtype: "float32" });

test("an image whose columns are larger than a binding", async () => {
  await torch.init(cpuDevice({ maxStorageBufferBindingSize: LIMIT, maxBufferSize: LIMIT }));
  torch.manual_seed(0);
  // 12 KiB, whose columns would have 108 KiB: nine taps, of groups and transposed too.
  const shape = [1, 4, 768];
  expect(() => torch.zeros([1, 36, 768])).toThrow(/a tensor of 110592 bytes/);
  const x = small(shape).requires_grad_();
  const w = small([4, 2, 9]).requires_grad_();
  const b = small([4]).requires_grad_();
  const y = torch.conv1d(x, w, b, 1, 4, 1, 2);
  const plain = reference(
    ...([
      (await x.detach().tolist()) as number[][][],
      (await w.detach().tolist()) as number[][][],
    ] as const),
    ...([4, 2] as const),
  );
  const bias = (await b.detach().tolist()) as number[];
  expect(await y.detach().tolist()).toEqual(
    plain.map((image) => image.map((line, c) => line.map((value) => value + bias[c]!))),
  );
  // Of integers, sums in any order are equal: the gradients are checked by what the result is linear in.
  const g = small(shape);
  const [dx, dw, db] = torch.autograd.grad(y, [x, w, b], [g]) as [Tensor, Tensor, Tensor];
  const along = async (a: Tensor, c: Tensor): Promise<unknown> => a.detach().mul(c).sum().item();
  const linear = await along(y.detach().sub(b.detach().reshape(1, -1, 1)), g);
  expect(await along(x, dx)).toBe(linear);
  expect(await along(w, dw)).toBe(linear);
  expect(await along(b, db)).toBe(await along(b.reshape(1, -1, 1).expand(shape), g));
  const back = torch.conv_transpose1d(g, w.detach(), undefined, 1, 4, 0, 2);
  expect(await torch.equal(back, dx)).toBe(true);
});

test("gradients of gradients, in three dimensions", async () => {
  await torch.init(cpuDevice());
  torch.manual_seed(1);
  const x = small([2, 2, 3, 4, 4]).requires_grad_();
  const w = small([2, 1, 2, 1, 3]).requires_grad_();
  const y = torch.conv3d(x, w, undefined, [1, 2, 1], [1, 0, 1], 1, 2);
  expect(y.shape).toEqual([2, 2, 4, 2, 4]);
  // Of a sum of squares s: x * ds/dx = w * ds/dw = 2 s, and the same once more.
  const s = y.mul(y).sum();
  const [dx, dw] = torch.autograd.grad(s, [x, w], undefined, { create_graph: true }) as [
    Tensor,
    Tensor,
  ];
  const twice = 2 * Number(await s.detach().item());
  const along = dx.mul(x).sum();
  expect(await along.detach().item()).toBe(twice);
  expect(await dw.mul(w).sum().detach().item()).toBe(twice);
  const [again] = torch.autograd.grad(along, [w]) as [Tensor];
  expect(await again.mul(w.detach()).sum().item()).toBe(2 * twice);
});

test("what convolutions refuse", async () => {
  await torch.init(cpuDevice());
  const [x, w] = [torch.ones([1, 2, 5]), torch.ones([3, 2, 3])];
  expect(() => torch.conv1d(x, torch.ones([3, 1, 3]))).toThrow(/to have 1 channels, but got 2/);
  expect(() => torch.conv1d(x, torch.ones([3, 2, 6]))).toThrow(/can't be greater than actual/);
  expect(() => torch.conv1d(x, w, torch.ones([2]))).toThrow(/expected bias to be 1-dimensional/);
  expect(() => torch.conv1d(x, w.half())).toThrow(/should be the same/);
  expect(() => torch.conv1d(x, w, undefined, [1, 1])).toThrow(/expected stride to be a single/);
  expect(() => torch.conv1d(x, w, undefined, 0)).toThrow(/non-positive stride/);
  expect(() => torch.conv1d(x, w, undefined, 1, -1)).toThrow(/negative padding/);
  expect(() => torch.conv1d(x, w, undefined, 2, "same")).toThrow(/for strided convolutions/);
  expect(() => torch.conv1d(x, w, undefined, 1, "full" as "same")).toThrow(RangeError);
  expect(() => torch.conv_transpose1d(torch.ones([1, 3, 5]), w, undefined, 2, 0, 2)).toThrow(
    /output padding must be smaller/,
  );
  expect(torch.conv1d(torch.ones([0, 2, 5]), w).shape).toEqual([0, 3, 3]);
});

import { beforeAll, expect, test } from "vitest";
import { NotImplementedError, Slice, torch } from "../torch";
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

test("a name that does not exist is an error that names it", () => {
  expect(() => (torch as unknown as { fft: unknown }).fft).toThrow(NotImplementedError);
  expect(() => (torch as unknown as { fft: unknown }).fft).toThrow(/torch\.fft/);
});

// A device that is lost: each value that is read afterwards says so, until init() is called again.
import { expect, test } from "vitest";
import { torch } from "../torch";
import { initTorch } from "./torch/gpu";

test("a lost device", async () => {
  const device = await initTorch();
  expect(await torch.ones([2]).sum().item()).toBe(2);
  const late = torch.ones([2]).sum().item();
  device.destroy();
  const message =
    /the WebGPU device was lost \(.+\), and all tensors with it: call `await torch.init/;
  await expect(late).rejects.toThrow(message);
  for (let k = 0; k < 3; ++k) {
    await expect(torch.ones([2]).sum().item()).rejects.toThrow(message);
  }
  await expect(torch.synchronize()).rejects.toThrow(message);
  await initTorch();
  expect(await torch.ones([3]).sum().item()).toBe(3);
});

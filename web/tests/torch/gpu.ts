// A GPUDevice in Node, from Dawn. Every test file runs in a process of its own.
import { create, globals } from "webgpu";
import { torch } from "../../torch";

/** Gives torch a device with the limits that every browser grants. */
export async function initTorch(): Promise<GPUDevice> {
  Object.assign(globalThis, globals);
  const gpu = create([]);
  // Kept alive with the device: Dawn stops when its instance is collected.
  Object.assign(globalThis, { testGpu: gpu });
  const adapter = await gpu.requestAdapter();
  if (adapter === null) {
    throw new Error("no WebGPU adapter");
  }
  return torch.init(await adapter.requestDevice());
}

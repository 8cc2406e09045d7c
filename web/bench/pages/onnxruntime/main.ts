/** ONNX files, by onnxruntime-web on its WebGPU execution provider. */

import * as ort from "onnxruntime-web/webgpu";
import { type Run, start, type Task } from "../page";

start(async ({ program, inputs, url }: Task): Promise<Run> => {
  // The module's glue is part of the bundle; pages that are not isolated have no threads.
  ort.env.wasm.wasmPaths = { wasm: url("onnxruntime/ort-wasm-simd-threaded.asyncify.wasm") };
  ort.env.wasm.numThreads = 1;
  const open = (options: object = {}) =>
    ort.InferenceSession.create(url(`files/${program}/onnx/model.onnx`), {
      executionProviders: ["webgpu"],
      graphOptimizationLevel: "all",
      ...options,
    });
  const whole = (values: Int32Array | number[]) => BigInt64Array.from(values, BigInt);
  switch (program) {
    case "minilm-1":
    case "minilm-32": {
      const session = await open();
      const feeds = Object.fromEntries(
        ["input_ids", "attention_mask"].map((name) => {
          const { data, shape } = inputs.integers(name);
          return [name, new ort.Tensor("int64", whole(data), shape)];
        }),
      );
      return async () => (await session.run(feeds))["sentence_embedding"]!.data;
    }
    case "resnet": {
      const session = await open();
      const { data, shape } = inputs.floats("pixel_values");
      const feeds = { pixel_values: new ort.Tensor("float32", data, shape) };
      return async () => (await session.run(feeds))["logits"]!.data;
    }
    case "gpt": {
      // The caches stay on the device: what a run returns is the next one's input.
      const names = [0, 1].flatMap((k) => [`${k}.key`, `${k}.value`]);
      const session = await open({
        preferredOutputLocation: {
          logits: "cpu",
          ...Object.fromEntries(names.map((name) => [`present.${name}`, "gpu-buffer"])),
        },
      });
      const tokens = inputs.integers("tokens").data;
      const shape = [1, 4, tokens.length, 24];
      const empty = () => new Float32Array(shape.reduce((product, size) => product * size));
      let caches = names.map((): ort.Tensor => new ort.Tensor("float32", empty(), shape));
      return async (k) => {
        const outputs = await session.run({
          token: new ort.Tensor("int64", whole([tokens[k]!]), [1]),
          position: new ort.Tensor("int64", whole([k]), [1]),
          ...Object.fromEntries(names.map((name, n) => [`past_key_values.${name}`, caches[n]!])),
        });
        caches.forEach((cache) => cache.dispose());
        caches = names.map((name) => outputs[`present.${name}`]!);
        return outputs["logits"]!.data;
      };
    }
    default:
      throw new Error("onnxruntime-web has no training: its package ends at inference sessions");
  }
});

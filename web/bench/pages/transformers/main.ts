/** ONNX files, by transformers.js. */

import { AutoModel, AutoModelForImageClassification, env, Tensor } from "@huggingface/transformers";
import { type Run, start, type Task } from "../page";

start(async ({ program, inputs, url }: Task): Promise<Run> => {
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = url("files/");
  env.backends.onnx.wasm.wasmPaths = {
    mjs: url("transformers/ort-wasm-simd-threaded.asyncify.mjs"),
    wasm: url("transformers/ort-wasm-simd-threaded.asyncify.wasm"),
  };
  env.backends.onnx.wasm.numThreads = 1;
  const options = { device: "webgpu", dtype: "fp32" } as const;
  switch (program) {
    case "minilm-1":
    case "minilm-32": {
      const model = await AutoModel.from_pretrained(program, options);
      const feeds = Object.fromEntries(
        ["input_ids", "attention_mask"].map((name) => {
          const { data, shape } = inputs.integers(name);
          return [name, new Tensor("int64", BigInt64Array.from(data, BigInt), shape)];
        }),
      );
      return async () => (await model(feeds))["sentence_embedding"]!.data;
    }
    case "resnet": {
      const model = await AutoModelForImageClassification.from_pretrained(program, options);
      const { data, shape } = inputs.floats("pixel_values");
      const feeds = { pixel_values: new Tensor("float32", data, shape) };
      return async () => (await model(feeds))["logits"]!.data;
    }
    default:
      throw new Error(
        program === "gpt"
          ? "transformers.js generates with the architectures that it knows, and this is none of them"
          : "transformers.js has no training",
      );
  }
});

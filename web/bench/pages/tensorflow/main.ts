/** The same networks, written with TensorFlow.js' core and its WebGPU backend. */

import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-backend-webgpu";
import { readTensors } from "../tensors";
import { type Run, start, type Task } from "../page";
import { digits } from "./digits";
import { gpt } from "./gpt";
import { minilm } from "./minilm";
import { resnet } from "./resnet";
import { Weights } from "./weights";

const PROGRAMS = { "minilm-1": minilm, "minilm-32": minilm, resnet, gpt, digits };

start(async ({ program, inputs, url }: Task): Promise<Run> => {
  if (!(await tf.setBackend("webgpu"))) {
    throw new Error("TensorFlow.js did not take its webgpu backend");
  }
  const name = program.replace(/-\d+$/, "");
  const weights = new Weights(await readTensors(url(`files/${name}.safetensors`)));
  return PROGRAMS[program as keyof typeof PROGRAMS](weights, inputs);
});

// State dicts: files of Python, our own, and files that are wrong.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { NotImplementedError, nn, safetensors, torch } from "../torch";
import { unpickle } from "../torch/io/pickle";
import { bytesOf } from "./torch/files";
import { initTorch } from "./torch/gpu";

beforeAll(initTorch);

test("views in a .pt file", async () => {
  const state = torch.load(bytesOf("views.pt"));
  const row = (from: number, count: number): number[] =>
    Array.from({ length: count }, (_, k) => from + k);
  expect([...state.keys()]).toEqual([
    ...["whole", "part", "transposed", "inner.half", "inner.mask", "inner.long"],
    ...["parameter", "empty"],
  ]);
  expect(await state.get("part")!.tolist()).toEqual([row(8, 3), row(14, 3)]);
  expect(await state.get("transposed")!.at(1).tolist()).toEqual([1, 7, 13, 19]);
  expect(state.get("inner.half")!.dtype).toBe("float16");
  expect(await state.get("inner.half")!.at(3).tolist()).toEqual(row(18, 6));
  expect(await state.get("inner.mask")!.at(0).tolist()).toEqual(row(0, 6).map(() => false));
  expect(await state.get("inner.long")!.tolist()).toEqual([-(2 ** 40), 7]);
  expect(await state.get("parameter")!.tolist()).toEqual(row(0, 6));
  expect(state.get("empty")!.shape).toEqual([0, 3]);
});

test("a .pt file of a module asks for classes, and is refused", () => {
  expect(() => torch.load(bytesOf("module.pt"))).toThrow(/the pickle has/);
});

test("a pickle that calls something is refused", () => {
  const code = new TextEncoder().encode("cos\nsystem\n(X\x04\0\0\0echo\x85R.");
  expect(() => unpickle(code)).toThrow(/a call of os system|which no state dict/);
});

test("damaged files raise, whatever byte is wrong", () => {
  const whole = bytesOf("mlp-sgd.pt");
  let seed = 1;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % below;
  };
  for (let k = 0; k < 300; k++) {
    const damaged = k % 3 === 0 ? whole.slice(0, random(whole.length)) : whole.slice();
    for (let change = 0; change < 4 && damaged.length > 0; change++) {
      damaged[random(damaged.length)] = random(256);
    }
    try {
      const state = torch.load(damaged);
      state.forEach((tensor) => {
        tensor.dispose();
      });
    } catch (error) {
      // Clear errors only: none of the machine's own.
      expect((error as Error).name, String(error)).toMatch(
        /^(RuntimeError|NotImplementedError|TypeError|RangeError)$/,
      );
    }
  }
});

test("safetensors of our own", async () => {
  const state = {
    a: torch.arange(6, { dtype: "float32" }).reshape(2, 3).t(),
    b: torch.tensor([true, false, true]),
    c: torch.tensor([1, -(2 ** 40)]),
    d: torch.tensor([0.5, -2], { dtype: "float16" }),
  };
  const bytes = await safetensors.save(state);
  const loaded = safetensors.load(bytes);
  for (const [name, tensor] of Object.entries(state)) {
    expect(await loaded.get(name)!.tolist()).toEqual(await tensor.tolist());
    expect(loaded.get(name)!.dtype).toBe(tensor.dtype);
  }
  expect(() => safetensors.load(bytes.subarray(0, 20))).toThrow(/not a safetensors file/);
});

const python = join(import.meta.dirname, "..", "..", ".venv", "bin", "python");

test.runIf(existsSync(python))("Python reads what is saved here", async () => {
  const folder = mkdtempSync(join(tmpdir(), "torch-"));
  try {
    const model = new nn.Sequential(new nn.Linear(3, 4), new nn.LayerNorm(4));
    writeFileSync(join(folder, "m.safetensors"), await safetensors.save(model.state_dict()));
    const code =
      "import sys, torch; from safetensors.torch import load_file; " +
      "m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)); " +
      "m.load_state_dict(load_file(sys.argv[1])); print(m[0].weight.sum().item())";
    const environment = { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0" };
    const printed = execFileSync(python, ["-c", code, join(folder, "m.safetensors")], {
      env: environment,
    });
    const sum = Number(await model.parameters()[0]!.detach().sum().item());
    expect(Number(printed.toString())).toBeCloseTo(sum, 5);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("names and shapes that do not fit", () => {
  const model = new nn.Linear(2, 3);
  expect(() => model.load_state_dict({ weight: torch.zeros([3, 2]) })).toThrow(
    /Missing key\(s\) in state_dict: "bias"/,
  );
  expect(() =>
    model.load_state_dict({ weight: torch.zeros([2, 2]), bias: torch.zeros([3]) }),
  ).toThrow(/size mismatch for weight/);
  expect(() => new nn.MultiheadAttention(4, 2, { batch_first: false as true })).toThrow(
    NotImplementedError,
  );
});

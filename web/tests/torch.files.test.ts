// State dicts: files of Python, our own, and files that are wrong.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { NotImplementedError, nn, optim, safetensors, torch, type Tensor } from "../torch";
import { unpickle } from "../torch/io/pickle";
import { bytesOf } from "./torch/files";
import { initTorch } from "./torch/gpu";

beforeAll(initTorch);

test("views in a .pt file", async () => {
  const { inner, ...state } = torch.load<
    Record<string, Tensor> & { inner: Record<string, Tensor> }
  >(bytesOf("views.pt"));
  const row = (from: number, count: number): number[] =>
    Array.from({ length: count }, (_, k) => from + k);
  expect(Object.keys(state)).toEqual(["whole", "part", "transposed", "parameter", "empty"]);
  expect(Object.keys(inner)).toEqual(["half", "mask", "long"]);
  expect(await state.part!.tolist()).toEqual([row(8, 3), row(14, 3)]);
  expect(await state.transposed!.at(1).tolist()).toEqual([1, 7, 13, 19]);
  expect(inner.half!.dtype).toBe("float16");
  expect(await inner.half!.at(3).tolist()).toEqual(row(18, 6));
  expect(await inner.mask!.at(0).tolist()).toEqual(row(0, 6).map(() => false));
  expect(await inner.long!.tolist()).toEqual([-(2 ** 40), 7]);
  expect(await state.parameter!.tolist()).toEqual(row(0, 6));
  expect(state.empty!.shape).toEqual([0, 3]);
});

test("a .pt file of a module asks for classes, and is refused", () => {
  expect(() => torch.load(bytesOf("module.pt"))).toThrow(/the pickle has/);
});

test("a checkpoint has dicts, lists, numbers and texts", async () => {
  const { model, optimizer, tied, ...rest } = torch.load<
    Record<string, unknown> & {
      model: Record<string, Tensor>;
      optimizer: { state: object; param_groups: Record<string, unknown>[] };
      tied: Tensor[];
    }
  >(bytesOf("checkpoint.pt"));
  expect(new nn.Linear(2, 2).load_state_dict(model)).toEqual({
    ...{ missing_keys: [], unexpected_keys: [] },
  });
  expect(optimizer.state).toEqual({});
  expect(optimizer.param_groups[0]).toMatchObject({
    ...{ lr: 0.5, betas: [0.9, 0.999], amsgrad: false, params: [0, 1], fused: null },
  });
  expect(tied[0]).toBe(tied[1]);
  expect(await tied[0]!.tolist()).toEqual([0, 1, 2]);
  expect(Object.entries(rest)).toEqual(
    Object.entries({
      ...{ epoch: 3, best: 0.25, name: "run", done: true, nothing: null, large: 2n ** 60n },
      ...{ losses: [1.5, [2, "x"]], size: [2, 3], dtype: "torch.bfloat16" },
      ["__proto__"]: 1,
    }),
  );
  expect(await torch.load<Tensor>(bytesOf("tensor.pt")).tolist()).toEqual([1, 2]);
  expect(() => new nn.Linear(2, 2).load_state_dict({ weight: 1, bias: 2 } as never)).toThrow(
    /expected torch.Tensor or Tensor-like object from checkpoint but received 1/,
  );
});

test("a file that contains itself, and one that is too deep", () => {
  expect(() => torch.load(bytesOf("itself.pt"))).toThrow(/^list\.0 contains itself$/);
  expect(() => torch.load(bytesOf("deep.pt"))).toThrow(/dicts or lists in more than 100 others/);
});

test("dtypes that are missing here are named, and converted if asked for", async () => {
  const [pt, st] = [bytesOf("dtypes.pt"), bytesOf("dtypes.safetensors")];
  expect(() => torch.load(pt)).toThrow(
    "tensor bfloat16 has the dtype bfloat16, which WGSL does not have: " +
      "torch.load(bytes, { convert: true }) makes float32 of it",
  );
  expect(() => safetensors.load(st)).toThrow(
    /safetensors\.load\(bytes, \{ convert: true \}\) makes/,
  );
  expect(() => safetensors.load(st, { cast: true } as object)).toThrow(/argument 'cast'/);
  const expected = {
    bfloat16: ["float32", [1, -2.5, 3.140625]],
    float64: ["float32", [Math.fround(0.1), -Infinity, 2]],
    uint8: ["int32", [0, 200, 255]],
    int8: ["int32", [-128, 0, 127]],
    int16: ["int32", [-32768, 0, 32767]],
  } as Record<string, [string, number[]]>;
  const loaded = torch.load(pt, { convert: true });
  const whole = safetensors.load(st, { convert: true });
  for (const [name, [dtype, values]] of Object.entries(expected)) {
    expect([name, loaded[name]!.dtype, await loaded[name]!.tolist()]).toEqual([
      ...[name, dtype, values.slice(1)],
    ]);
    expect([name, whole.get(name)!.dtype, await whole.get(name)!.tolist()]).toEqual([
      ...[name, dtype, values],
    ]);
  }
});

test("a pickle that calls something is refused", () => {
  const code = new TextEncoder().encode("cos\nsystem\n(X\x04\0\0\0echo\x85R.");
  expect(() => unpickle(code)).toThrow(/a call of os system|which no state dict/);
});

test.each(["mlp-sgd.pt", "checkpoint.pt", "dtypes.safetensors"])(
  "%s, damaged, raises, whatever byte is wrong",
  (name) => {
    const whole = bytesOf(name);
    let seed = 1;
    const random = (below: number): number => {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      return (seed >>> 8) % below;
    };
    for (let k = 0; k < 1000; k++) {
      const damaged = k % 3 === 0 ? whole.slice(0, random(whole.length)) : whole.slice();
      for (let change = 0; change < 4 && damaged.length > 0; change++) {
        damaged[random(damaged.length)] = random(256);
      }
      try {
        if (name.endsWith(".pt")) {
          torch.load(damaged, { convert: true });
        } else {
          safetensors.load(damaged, { convert: true });
        }
      } catch (error) {
        // Clear errors only: none of the machine's own.
        expect((error as Error).name, String(error)).toMatch(
          /^(RuntimeError|NotImplementedError)$/,
        );
      }
    }
  },
);

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

const checkpoint = async (): Promise<{ bytes: Uint8Array; sum: number }> => {
  torch.manual_seed(0);
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.LayerNorm(4));
  const optimizer = new optim.Adam(model.parameters(), { lr: 0.25 });
  model
    .forward(torch.ones([2, 3]))
    .square()
    .sum()
    .backward();
  optimizer.step();
  const shared = torch.arange(6).view(2, 3);
  const bytes = await torch.save({
    model: model.state_dict(),
    optimizer: optimizer.state_dict(),
    tied: [shared, shared.view(2, 3), shared.t()],
    dtypes: new Map<string | number, Tensor>([
      ["half", torch.tensor([0.5, -2], { dtype: "float16" })],
      ["flags", torch.tensor([true, false])],
      [3, torch.tensor([-1, 7], { dtype: "int32" })],
    ]),
    empty: torch.zeros([0, 3]),
    rest: [1, -1.5, -0, 2n ** 60n, -(2n ** 40n), "ä", true, null, NaN, []],
    ["__proto__"]: 1,
  });
  return { bytes, sum: Number(await model.parameters()[0]!.detach().sum().item()) };
};

test("what torch.save writes is what torch.load reads", async () => {
  const { bytes } = await checkpoint();
  const loaded = torch.load<Record<string, never> & { tied: Tensor[]; rest: unknown[] }>(bytes);
  expect(Object.keys(loaded["model"]!)).toEqual(["0.weight", "0.bias", "1.weight", "1.bias"]);
  expect(await loaded.tied[2]!.tolist()).toEqual([
    [0, 3],
    [1, 4],
    [2, 5],
  ]);
  expect(loaded.rest).toEqual([...[1, -1.5, -0, 2n ** 60n, -(2 ** 40), "ä", true, null, NaN, []]]);
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.LayerNorm(4));
  const optimizer = new optim.Adam(model.parameters());
  model.load_state_dict(loaded["model"]!);
  await optimizer.load_state_dict(loaded["optimizer"]!);
  expect(optimizer.param_groups[0]!.lr).toBe(0.25);
  await expect(torch.save(new Date() as never)).rejects.toThrow(/it is no tensor/);
  await expect(torch.save({ a: [new Uint8Array(2)] } as never)).rejects.toThrow(/a.0 is no tensor/);
});

test.runIf(existsSync(python))("Python reads what torch.save writes here", async () => {
  const folder = mkdtempSync(join(tmpdir(), "torch-"));
  try {
    const { bytes, sum } = await checkpoint();
    writeFileSync(join(folder, "m.pt"), bytes);
    const code = `
import sys, math, zipfile, torch
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
for options in ({}, {"mmap": True}):
    one = torch.load(sys.argv[1], weights_only=True, **options)
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    m.load_state_dict(one["model"])
    o = torch.optim.Adam(m.parameters())
    o.load_state_dict(one["optimizer"])
    assert o.param_groups[0]["lr"] == 0.25 and o.state[m[1].bias]["step"] == 1
    o.step()
    a, b, c = one["tied"]
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]] and a.dtype == torch.int64
    assert torch.equal(c, a.t()) and a.data_ptr() == b.data_ptr()
    kinds = {k: (x.dtype, x.tolist()) for k, x in one["dtypes"].items()}
    assert kinds == {
        "half": (torch.float16, [0.5, -2]), "flags": (torch.bool, [True, False]), 3: (torch.int32, [-1, 7])
    }, kinds
    assert one["empty"].shape == (0, 3)
    rest = one["rest"]
    assert rest[:2] == [1, -1.5] and math.copysign(1, rest[2]) == -1, rest
    assert rest[3:8] == [2**60, -(2**40), "ä", True, None] and math.isnan(rest[8]) and rest[9] == []
    print(one["model"]["0.weight"].sum().item())
`;
    const environment = { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0" };
    const printed = execFileSync(python, ["-c", code, join(folder, "m.pt")], { env: environment });
    for (const line of printed.toString().trim().split("\n")) {
      expect(Number(line)).toBeCloseTo(sum, 5);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("what torch.save does not write", async () => {
  const refused = (value: unknown): Promise<string> =>
    torch.save(value as never).then(
      () => "written",
      (error: unknown) => String(error),
    );
  const x = torch.ones([1]);
  for (const [value, message] of [
    [[1, , 2], /a list without an element 1/], // eslint-disable-line no-sparse-arrays -- this is what is refused
    [{ a: { b: Array(2) } }, /a.b is a list without an element 0/],
    [new Map([[[1], x]]), /a dict with a key that is no number or text/],
    [new Map([[x, x]]), /a dict with a key that is no number or text/],
    [{ [Symbol("a")]: x }, /a dict with a key that is no number or text/],
    [new Map<unknown, Tensor>([[1, x], [true, x]]), /the keys 1 and true, which are one in Python/], // prettier-ignore
    [new Map<unknown, Tensor>([[1, x], [1n, x]]), /the keys 1 and 1n, which are one in Python/], // prettier-ignore
    [new Map<unknown, Tensor>([[null, x], [undefined, x]]), /the keys null and undefined/], // prettier-ignore
    ["\ud800", /no text of Unicode/],
    [{ "\udc00": 1 }, /no text of Unicode/],
    [1n << 2040n, /an integer of more than 255 bytes/],
    [new nn.Linear(1, 1), /it is no tensor/],
    [[new optim.SGD([new nn.Parameter(x)])], /0 is no tensor/],
    [new Set([1]), /it is no tensor/],
    [() => 1, /it is no tensor/],
    [Symbol("a"), /it is no tensor/],
  ] as [unknown, RegExp][]) {
    expect(await refused(value), String(message)).toMatch(message);
  }
  // What Python reads, but no object holds.
  const both = await torch.save(new Map<unknown, Tensor>([[1, x], ["1", x]]) as never); // prettier-ignore
  await expect((async () => torch.load(both))()).rejects.toThrow(
    'the file is a dict with the keys 1 and "1"',
  );
  await expect(safetensors.save({ __metadata__: x })).rejects.toThrow(/no name of a tensor/);
  await expect(safetensors.save({ a: [1] as never })).rejects.toThrow(/must be Tensor/);
});

test.runIf(existsSync(python))(
  "keys keep their type, and only the states of optimizers have numbers",
  async () => {
    const bytes = await torch.save({
      keys: new Map<never, number>([
        ...([[5n, 1], [true, 2], [null, 3], ["7", 4], [1.5, 5], [2n ** 70n, 6]] as [never, number][]), // prettier-ignore
      ]),
      plain: { state: { lr: 1, 0: 2 }, param_groups: [] },
      other: { state: { a: {} }, param_groups: [{ params: [0] }] },
      optimizer: { state: { 0: { step: 1 } }, param_groups: [{ params: [0] }] },
      large: -(1n << 2039n),
    });
    const folder = mkdtempSync(join(tmpdir(), "torch-"));
    try {
      writeFileSync(join(folder, "k.pt"), bytes);
      const code =
        "import sys, torch; one = torch.load(sys.argv[1], weights_only=True); print([list(d) for d in " +
        "(one['keys'], one['plain']['state'], one['other']['state'], one['optimizer']['state'])]," +
        " one['large'] == -(1 << 2039))";
      const environment = { ...process.env, TORCH_DEVICE_BACKEND_AUTOLOAD: "0" };
      const options = { env: environment, encoding: "utf8" } as const;
      expect(execFileSync(python, ["-c", code, join(folder, "k.pt")], options).trim()).toBe(
        `[[5, True, None, '7', 1.5, ${2n ** 70n}], ['0', 'lr'], ['a'], [0]] True`,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

test("integers of a pickle, and what is kept of an empty stack", () => {
  const ints = (...bytes: number[]): unknown =>
    unpickle(Uint8Array.from([0x80, 2, ...bytes, 0x2e]));
  expect(ints(0x8a, 0)).toBe(0);
  expect(ints(0x8a, 1, 0xff)).toBe(-1);
  expect(ints(0x8a, 255, ...Array<number>(254).fill(0), 0x40)).toBe(1n << 2038n);
  expect(() => ints(0x8b, 0, 1, 0, 0)).toThrow("the pickle has an integer of more than 255 bytes");
  expect(() => ints(0x71, 0)).toThrow(/empty stack/);
});

test("safetensors files with gaps, overlaps and more behind them", () => {
  const file = (places: [number, number][], bytes: number): Uint8Array => {
    const header = Object.fromEntries(
      places.map((data_offsets, k) => [k, { dtype: "BOOL", shape: [data_offsets[1] - data_offsets[0]], data_offsets }]), // prettier-ignore
    );
    const text = new TextEncoder().encode(JSON.stringify(header));
    const whole = new Uint8Array(8 + text.length + bytes);
    new DataView(whole.buffer).setBigUint64(0, BigInt(text.length), true);
    whole.set(text, 8);
    return whole;
  };
  expect(safetensors.load(file([[4, 8], [4, 4], [0, 4]], 8)).size).toBe(3); // prettier-ignore
  for (const places of [
    [
      [0, 4],
      [2, 6],
    ],
    [
      [0, 4],
      [5, 6],
    ],
    [[1, 6]],
  ] as [number, number][][]) {
    // prettier-ignore
    expect(() => safetensors.load(file(places, 6))).toThrow(/overlap or have gaps/);
  }
  expect(() => safetensors.load(file([[0, 4]], 6))).toThrow(/2 bytes behind its tensors/);
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

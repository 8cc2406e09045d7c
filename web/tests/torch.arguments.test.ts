// Arguments that nothing would read: each is an error, and changes nothing without a word.
import { beforeAll, expect, test } from "vitest";
import { NotImplementedError, nn, optim, safetensors, torch, type Tensor } from "../torch";
import { missingAttributes, missingMethods } from "../torch/missing";
import { cpuDevice } from "./cpu/device";

beforeAll(async () => {
  await torch.init(cpuDevice());
});

// What TypeScript refuses, JavaScript and `any` can still give.
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as said
type Loose = any;
const classes = nn as unknown as Record<string, new (...args: Loose[]) => nn.Module>;
const f = nn.functional as unknown as Record<string, (...args: Loose[]) => Loose>;
const t = torch as unknown as Record<string, (...args: Loose[]) => Loose>;

test.each<[name: string, args: Loose[], message: RegExp]>([
  ["Linear", [3, 4, false], /Linear\(\): expected an object of options, \{ bias \}, but got false/],
  ["Linear", [3, 4, { biass: false }], /unexpected keyword argument 'biass'; it takes bias/],
  ["Linear", [3, 4, { bias: false }, 1], /takes at most 3 arguments, but 4 were given/],
  ["Conv1d", [1, 2, 3, 2], /expected an object of options, \{ stride, padding, .*, but got 2/],
  ["Conv2d", [1, 2, 3, 2, 1], /takes at most 4 arguments, but 5 were given/],
  ["ConvTranspose2d", [1, 2, 3, { outputPadding: 1 }], /unexpected keyword argument/],
  ["BatchNorm1d", [3, { affin: false }], /unexpected keyword argument 'affin'/],
  ["LayerNorm", [3, 1e-3], /expected an object of options/],
  ["Embedding", [3, 4, 0], /expected an object of options, \{ padding_idx \}, but got 0/],
  ["ReLU", [true], /ReLU\(\) takes at most 0 arguments/],
  ["ReLU", [{ inplace: true }], /ReLU\(\) takes at most 0 arguments/],
  ["Dropout", [{ p: 0.1 }], /Dropout\(p\): argument 1 is an object, where p belongs/],
  ["MaxPool2d", [2, { stride: 1 }], /argument 2 is an object, where stride belongs/],
  ["MSELoss", ["sum"], /expected an object of options, \{ reduction \}, but got "sum"/],
  ["CrossEntropyLoss", [{ weights: undefined }], /unexpected keyword argument 'weights'/],
  ["MultiheadAttention", [4, 2, { batch_first: true, kdim: 3 }], /'kdim'/],
])("nn.%s(%j)", (name, args, message) => {
  expect(() => new classes[name]!(...args)).toThrow(TypeError);
  expect(() => new classes[name]!(...args)).toThrow(message);
});

test("functions and methods", () => {
  const x = torch.ones([2, 2]);
  const loose = x as unknown as Record<string, (...args: Loose[]) => Loose>;
  expect(() => t.zeros!([2], "int64")).toThrow(/zeros\(\): expected an object .* but got "int64"/);
  expect(() => t.zeros!([2], { type: "int64" })).toThrow(/unexpected keyword argument 'type'/);
  expect(() => t.zeros!(2, 3, 4)).toThrow(/takes at most 2 arguments/);
  expect(() => t.arange!(3, { typ: "int64" })).toThrow(/unexpected keyword argument 'typ'/);
  expect(() => t.randint!(0, 3, [2], "int32")).toThrow(/expected an object .* but got "int32"/);
  expect(() => t.add!(x, x, 2)).toThrow(/add\(\): expected an object of options, \{ alpha \}/);
  expect(() => loose.add!(x, 2)).toThrow(/add\(\): expected an object of options, \{ alpha \}/);
  expect(() => loose.sum!(0, { keepdim: false })).toThrow(/argument 2 is an object, where keepdim/);
  expect(() => loose.softmax!(1, "float16")).toThrow(/softmax\(\): expected an object/);
  expect(() => loose.cumsum!({ dim: 0 })).toThrow(/where dim belongs/);
  expect(() => f.conv2d!(x, x, undefined, { padding: 1 })).toThrow(/where stride belongs/);
  expect(() => f.dropout!(x, { p: 0.1 })).toThrow(/where p belongs/);
  expect(() => f.mse_loss!(x, x, "sum")).toThrow(/expected an object of options, \{ reduction \}/);
  expect(() => t.split!(x, { size: 1 })).toThrow(TypeError);
  expect(() => {
    x.backward(undefined, { retainGraph: true } as object);
  }).toThrow(/unexpected keyword argument 'retainGraph'/);
  expect(() => new nn.Linear(2, 2).load_state_dict({}, { strikt: false } as object)).toThrow(
    /unexpected keyword argument 'strikt'/,
  );
  expect(() => new nn.Sequential([new nn.ReLU()] as unknown as nn.Module)).toThrow(
    /is not a Module subclass/,
  );
});

test("methods of modules and optimizers, and functions of nn.utils", async () => {
  const model: Loose = new nn.Linear(2, 2);
  const optimizer: Loose = new optim.SGD(model.parameters());
  const unknown = /takes at most \d arguments?, but \d (was|were) given/;
  for (const [owner, name, ...args] of [
    ...[[model, "to", "webgpu", "float16"], [model, "parameters", false]], // prettier-ignore
    ...[[model, "named_parameters", "prefix"], [model, "state_dict", "prefix"]], // prettier-ignore
    ...[[model, "eval", true], [model, "buffers", false], [optimizer, "step", () => 1]], // prettier-ignore
    ...[[optimizer, "state_dict", 1], [torch.ones([]), "backward", undefined, {}, true]], // prettier-ignore
  ] as Loose[][]) {
    expect(() => owner[name](...args), name).toThrow(unknown);
  }
  expect(() => model.load_state_dict({}, { assign: true })).toThrow(/argument 'assign'/);
  expect(() => model.load_state_dict(Promise.resolve({}), { strict: false })).toThrow(/be dict/);
  expect(() => model.load_state_dict(null)).toThrow(/must be dict, not null/);
  expect(() => optimizer.load_state_dict([])).toThrow(/must be dict/);
  const clip = nn.utils.clip_grad_norm_ as (...args: Loose[]) => Tensor;
  expect(() => clip(model.parameters(), 1, { error_if_nonfinit: true })).toThrow(TypeError);
  expect(() => clip(model.parameters(), 1, 2, { error_if_nonfinit: true })).toThrow(
    /unexpected keyword argument 'error_if_nonfinit'; it takes error_if_nonfinite/,
  );
  expect(() => clip(model.parameters(), 1, 2, true)).toThrow(/expected an object of options/);
  expect(() => clip([1], 1)).toThrow(/'parameters' must be Tensor/);

  const weight = model.weight as nn.Parameter;
  for (const one of [model, optimizer]) {
    weight.sum().backward();
    one.zero_grad(false);
    expect(await weight.grad!.sum().item()).toBe(0);
    one.zero_grad();
    expect(weight.grad).toBeUndefined();
  }
});

test("buffers that are no part of the state", () => {
  class Scaled extends nn.Module {
    declare scale: Tensor;

    constructor() {
      super();
      this.register_buffer("scale", torch.tensor(2), { persistent: false });
    }

    override forward(x: Tensor): Tensor {
      return x.mul(this.scale);
    }
  }
  const model = new Scaled();
  expect([...model.state_dict().keys()]).toEqual([]);
  expect(model.load_state_dict({})).toEqual({ missing_keys: [], unexpected_keys: [] });
  expect(model.named_buffers().map(([name]) => name)).toEqual(["scale"]);
});

test("each function of nn.functional and each class of nn says what it takes", async () => {
  const x = torch.ones([2, 2]);
  const many = Array<Loose>(20).fill(x);
  for (const [name, call] of Object.entries(f)) {
    expect(() => call(...many), name).toThrow(/ takes at most \d+ arguments, but 20 were given/);
  }
  // Of torch, but for those that take any number, what is no operator, and what nn.functional has.
  const any =
    /^(view|reshape|permute|expand|repeat|tile|flip|sum_to_size|einsum|broadcast_tensors|at|atleast_.d|block_diag|cartesian_prod|meshgrid|arange|randint)$/;
  const none =
    /^([A-Z].*|init|scope|.*_grad.*|load|synchronize|memory|empty_cache|refuseBool|reducedDims|unfold_image)$/;
  for (const [name, call] of Object.entries(t)) {
    if (typeof call === "function" && !any.test(name) && !none.test(name) && !(name in f)) {
      expect(() => call(...many), name).toThrow(/ takes at most \d+ arguments, but 20 were given/);
    }
  }
  expect(() => (x as Loose).squeeze(0, 1)).toThrow("squeeze(dim) takes at most 1 arguments");
  const free = ["Identity", "Module", "ModuleDict", "Parameter", "Sequential"];
  for (const [name, make] of Object.entries(classes)) {
    if (typeof make === "function" && !free.includes(name)) {
      expect(() => new make(...many), name).toThrow(/ takes at most \d+ arguments, but 20 were/);
    }
  }
  expect(() => f.relu!(x, true)).toThrow("relu(input) takes at most 1 arguments, but 2 were given");
  expect(() => f.pad!(x, [1, 1], "mirror")).toThrow(/padding mode mirror/);
  expect(() => f.pad!(x, [1, 1], "reflect", 2)).toThrow(/doesn't take in value argument/);
  expect(await nn.functional.pad(x, [1, 0], "constant", 2).tolist()).toEqual([[2, 1, 1], [2, 1, 1]]); // prettier-ignore
});

test("what is meant still works", async () => {
  expect(new nn.Linear(3, 4, { bias: false }).bias).toBeUndefined();
  expect(new nn.BatchNorm1d(3, { affine: false }).parameters()).toEqual([]);
  expect([...new nn.BatchNorm2d(3, { track_running_stats: false }).state_dict().keys()]).toEqual([
    ...["weight", "bias"],
  ]);
  expect(new nn.GroupNorm(1, 2, { affine: false }).parameters()).toEqual([]);
  class Wide extends nn.Linear {
    constructor() {
      super(2, 8, { bias: false });
    }
  }
  const wide: nn.Linear = new Wide();
  expect(wide).toBeInstanceOf(nn.Linear);
  expect(wide).toBeInstanceOf(Wide);
  const normal = new nn.BatchNorm1d(2, { affine: false });
  const out = normal.forward(torch.tensor([[1, 2], [3, 6]], { dtype: "float32" })); // prettier-ignore
  expect((await out.abs().sub(1).abs().max().item()) as number).toBeLessThan(1e-4);
});

test.each<[name: "SGD" | "Adam" | "AdamW", options: Loose, message: string]>([
  ["SGD", { learning_rate: 5 }, "SGD() got an unexpected keyword argument 'learning_rate'"],
  ["Adam", { momentum: 5 }, "Adam() got an unexpected keyword argument 'momentum'"],
  ["AdamW", 0.1, "AdamW(): expected an object of options"],
  ["SGD", { lr: -1 }, "Invalid learning rate: -1"],
  ["SGD", { lr: NaN }, "Invalid learning rate: NaN"],
  ["SGD", { lr: "0.1" }, "Invalid learning rate: 0.1"],
  ["SGD", { momentum: -0.5 }, "Invalid momentum value: -0.5"],
  ["SGD", { weight_decay: -0.5 }, "Invalid weight_decay value: -0.5"],
  ["SGD", { nesterov: true }, "Nesterov momentum requires a momentum and zero dampening"],
  ["Adam", { betas: [2, 3] }, "Invalid beta parameter at index 0: 2"],
  ["Adam", { betas: [0.9, 1] }, "Invalid beta parameter at index 1: 1"],
  ["AdamW", { eps: -1 }, "Invalid epsilon value: -1"],
  ["AdamW", { weight_decay: -1 }, "Invalid weight_decay value: -1"],
])("optim.%s(%j)", (name, options, message) => {
  const parameters = new nn.Linear(2, 2).parameters();
  expect(() => new optim[name](parameters, options)).toThrow(message);
  if (typeof options === "object") {
    expect(() => new optim[name]([{ params: parameters, ...options }])).toThrow(message);
  }
});

test("values of options of another kind", async () => {
  const parameter = new nn.Parameter(torch.ones([1]));
  for (const [name, options] of [
    ...[["Adam", { amsgrad: "yes" }], ["Adam", { betas: [0.9] }], ["Adam", { betas: 0.9 }]], // prettier-ignore
    ...[["SGD", { nesterov: 1, momentum: 0.9 }], ["SGD", { dampening: "0.5" }]], // prettier-ignore
  ] as ["SGD" | "Adam", Loose][]) {
    expect(() => new optim[name]([parameter], options), JSON.stringify(options)).toThrow(TypeError);
  }
  const adam = (options: object) => () => new optim.Adam([parameter], options);
  expect(adam({ amsgrad: "yes" })).toThrow(`argument 'amsgrad' must be a boolean, not "yes"`);
  expect(adam({ betas: [0.9] })).toThrow("argument 'betas' must be a list of 2 numbers, not [0.9]");
  for (const params of [undefined, parameter, new nn.Linear(1, 1), "ab"] as Loose[]) {
    expect(() => new optim.SGD(params)).toThrow(/an iterable of Tensors or dicts/);
  }
  const optimizer = new optim.Adam([parameter]);
  parameter.sum().backward();
  optimizer.step();
  const state = optimizer.state_dict() as Loose;
  const load = (other: object) => expect(optimizer.load_state_dict(other as Loose)).rejects;
  await load({}).toThrow(/no param_groups/);
  await load({ ...state, param_groups: [{}] }).toThrow(/no param_groups/);
  await load({ ...state, state: null }).toThrow(/has no state/);
  await load({ ...state, state: { 0: { ...state.state[0], step: "1" } } }).toThrow(/no Tensor/);
  expect(() => f.dropout!(parameter, 0.5, 1)).toThrow(/'training' \(position 3\) must be bool/);
  expect(() => f.avg_pool1d!(torch.ones([1, 4]), 2, 2, 0, 1)).toThrow(/'ceil_mode'/);
});

test("what is no tensor, no bytes and no list of numbers", () => {
  const loose = (value: unknown): Loose => value;
  for (const value of [undefined, 5, [1, 2]]) {
    for (const layer of [
      new nn.Linear(2, 2),
      new nn.ReLU(),
      new nn.BatchNorm2d(2),
      new nn.LSTM(2, 2),
    ]) {
      // prettier-ignore
      expect(() => layer.forward(loose(value))).toThrow(/forward\(\): argument 'input' must be Tensor/);
    }
    expect(() => torch.load(loose(value))).toThrow(/bytes of the file must be Uint8Array/);
    expect(() => safetensors.load(loose(value))).toThrow(/bytes of the file must be Uint8Array/);
  }
  const x = torch.ones([2]);
  expect(() => (x.grad = loose(1))).toThrow(/must be Tensor/);
  x.grad = loose(null);
  expect(x.grad).toBeUndefined();
  // eslint-disable-next-line no-sparse-arrays -- this is what is refused
  expect(() => torch.tensor(loose([1, , 2]))).toThrow(/numbers and lists of them/);
  expect(torch.zeros(loose(3)).shape).toEqual([3]);
});

test("parameters of optimizers", () => {
  const [weight, bias] = new nn.Linear(2, 2).parameters() as [nn.Parameter, nn.Parameter];
  expect(() => new optim.SGD([{ params: [weight] }, { params: [weight, bias] }])).toThrow(
    "some parameters appear in more than one parameter group",
  );
  expect(() => new optim.SGD([1 as Loose])).toThrow(/can only optimize Tensors/);
});

test("groups of parameters, and their states", async () => {
  const [weight, bias] = new nn.Linear(2, 2).parameters() as [nn.Parameter, nn.Parameter];
  const optimizer = new optim.Adam([weight], { lr: 0.5 });
  optimizer.add_param_group({ params: bias, lr: 0.25 });
  expect(() => {
    optimizer.add_param_group({ params: [weight] });
  }).toThrow("some parameters appear in more than one parameter group");
  expect(optimizer.state_dict().param_groups.map(({ lr, params }) => [lr, params])).toEqual([
    ...[[0.5, [0]], [0.25, [1]]], // prettier-ignore
  ]);
  weight.mul(bias).sum().backward();
  optimizer.step();
  const saved = optimizer.state_dict();
  expect(Object.keys(saved.state)).toEqual(["0", "1"]);
  expect(await (saved.state["1"]!.step as Loose).item()).toBe(1);
  const load = (state: Loose): Promise<void> => optimizer.load_state_dict(state);
  await load({ ...saved, param_groups: saved.param_groups.map((one) => ({ ...one, lr: 2 })) });
  expect(optimizer.param_groups.map(({ lr }) => lr)).toEqual([2, 2]);
  const [first, second] = saved.param_groups as [Loose, Loose];
  const wrong = (state: Loose) => expect(load({ ...saved, ...state })).rejects;
  await wrong({ param_groups: [first] }).toThrow(/different number of parameter groups/);
  await wrong({ param_groups: [first, { ...second, params: [1, 2] }] }).toThrow(/match the size/);
  await wrong({ param_groups: [first, { ...second, lr: -1 }] }).toThrow(
    "Invalid learning rate: -1",
  );
  await wrong({ state: { 7: {} } }).toThrow(/a state of parameter 7/);
  await wrong({ state: { 0: saved.state["1"] } }).toThrow(/exp_avg of shape \[2\] for parameter 0/);
  await wrong({ state: { 0: { step: 1 } } }).toThrow(/no exp_avg for parameter 0/);
  // What was refused changed nothing.
  expect(optimizer.param_groups.map(({ lr }) => lr)).toEqual([2, 2]);
  expect(optimizer.state.size).toBe(2);
});

test("Adam with decoupled_weight_decay is AdamW", async () => {
  const step = async (make: (p: nn.Parameter[]) => optim.Adam): Promise<unknown> => {
    const parameter = new nn.Parameter(torch.tensor([1, -2], { dtype: "float32" }));
    const optimizer = make([parameter]);
    parameter.mul(parameter).sum().backward();
    optimizer.step();
    return parameter.detach().tolist();
  };
  const options = { lr: 0.1, weight_decay: 0.5 };
  const adamW = await step((p) => new optim.AdamW(p, options));
  expect(
    await step((p) => new optim.Adam(p, { ...options, decoupled_weight_decay: true })),
  ).toEqual(adamW);
  expect(await step((p) => new optim.Adam(p, options))).not.toEqual(adamW);
});

test("a module with two names is one module", () => {
  class Twice extends nn.Module {
    a = new nn.BatchNorm1d(2);
    b = this.a;

    override forward(x: Tensor): Tensor {
      return this.b.forward(this.a.forward(x));
    }
  }
  const model = new Twice();
  expect(model.modules()).toEqual([model, model.a]);
  expect([...model.named_modules()].map(([name]) => name)).toEqual(["", "a"]);
  expect([...model.named_parameters()].map(([name]) => name)).toEqual(["a.weight", "a.bias"]);
  expect(model.buffers().length).toBe(3);
  // A state dict has both names, as in PyTorch.
  expect([...model.state_dict().keys()].filter((name) => /weight/.test(name))).toEqual([
    ...["a.weight", "b.weight"],
  ]);
});

test("a state dict has PyTorch's order, and becomes an object", () => {
  class Scaled extends nn.Module {
    inner = new nn.Sequential(new nn.BatchNorm1d(2, { affine: false }), new nn.Linear(2, 2));
    declare scale: Tensor;
    weight: nn.Parameter;

    constructor() {
      super();
      this.register_buffer("scale", torch.tensor(2));
      this.weight = new nn.Parameter(torch.ones([3]));
    }

    override forward(x: Tensor): Tensor {
      return x;
    }
  }
  const state = new Scaled().state_dict();
  const names = [
    ...["weight", "scale"],
    ...["inner.0.running_mean", "inner.0.running_var", "inner.0.num_batches_tracked"],
    ...["inner.1.weight", "inner.1.bias"],
  ];
  expect([...state.keys()]).toEqual(names);
  expect([...state].map(([name]) => name)).toEqual(names);
  const object = Object.fromEntries(state);
  expect(new Scaled().load_state_dict(object)).toEqual({ missing_keys: [], unexpected_keys: [] });
});

test("what PyTorch has and this room does not says so, wherever it is asked for", async () => {
  for (const [module, name] of [
    ...[["torch", "fft"], ["torch.nn", "EmbeddingBag"], ["torch.nn.functional", "ctc_loss"]], // prettier-ignore
    ...[["torch.nn.utils", "parametrize"], ["torch.optim", "LBFGS"]], // prettier-ignore
  ] as [string, string][]) {
    const path = `${module}.${name}`.split(".").slice(1);
    const at = (from: Loose): Loose => path.reduce((one: Loose, part) => one[part] as Loose, from);
    const torches = module.startsWith("torch.") ? { nn, optim } : torch;
    expect(() => at(torches)).toThrow(
      new NotImplementedError(
        `${module}.${name} is not implemented; web/torch/README.md lists what exists`,
      ),
    );
  }
  const x = torch.ones([2, 2]) as Loose;
  for (const name of missingMethods) {
    expect(() => x[name](), name).toThrow(`Tensor.${name} is not implemented`);
  }
  for (const name of missingAttributes) {
    expect(() => x[name] as unknown, name).toThrow(`Tensor.${name} is not implemented`);
  }
  // A tensor is no promise, and nothing else that programs ask for.
  expect(await Promise.resolve(x as unknown)).toBe(x);
  expect([x.then, x.toJSON, x.length, x.nodeType]).toEqual(Array(4).fill(undefined));
});

/** Programs to begin with. */

export const EXAMPLES: Readonly<Record<string, string>> = {
  Tensors: `import { torch } from "torch-webgpu/torch";

torch.manual_seed(0);
const x = torch.arange(12).view(3, 4);
print(x);
print(x.t());
print(x.sum(0), x.to(torch.float32).mean());

// A row and a column make a table.
const row = torch.linspace(0, 1, 5);
const column = torch.tensor([[1], [10], [100]]);
print(row.mul(column));

const { values, indices } = torch.randn([6]).sort();
print(values);
print(indices);

const a = torch.randn([256, 256]);
print(a.matmul(a).relu());
`,
  Autograd: `import { torch } from "torch-webgpu/torch";

const x = torch.tensor([0.5, 1, 2], { requires_grad: true });
const y = x.sin().mul(x).sum();
y.backward();
print(y);
print(x.grad);
print(x.detach().cos().mul(x.detach()).add(x.detach().sin())); // by hand

// The gradient of a gradient.
const z = torch.tensor(3, { dtype: torch.float32, requires_grad: true });
const [first] = torch.autograd.grad(z.pow(3), [z], undefined, { create_graph: true });
const [second] = torch.autograd.grad(first, [z]);
print(first, second); // 3 z^2 and 6 z
`,
  "Train a network": `import { torch, nn, optim } from "torch-webgpu/torch";

// A network learns the sine.
torch.manual_seed(0);
const model = new nn.Sequential(
  new nn.Linear(1, 32), new nn.Tanh(), new nn.Linear(32, 32), new nn.Tanh(), new nn.Linear(32, 1),
);
const optimizer = new optim.Adam(model.parameters(), { lr: 1e-2 });
const x = torch.linspace(-3, 3, 64).unsqueeze(1);
const target = x.sin();

for (let step = 1; step <= 200; step++) {
  const loss: number = await torch.scope(async () => {
    const loss = nn.functional.mse_loss(model.forward(x), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return step % 20 === 0 ? Number(await loss.item()) : NaN;
  });
  if (step % 20 === 0) {
    print(\`step \${step}  loss \${loss.toFixed(5)}\`);
  }
}
const some = torch.tensor([[0], [1], [2]], { dtype: torch.float32 });
print(torch.no_grad(() => torch.cat([model.forward(some), some.sin()], 1)));
`,
  "A module of your own": `import { torch, nn, type Tensor } from "torch-webgpu/torch";

class Attention extends nn.Module {
  qkv: nn.Linear;
  out: nn.Linear;

  constructor(width: number, private heads: number) {
    super();
    this.qkv = new nn.Linear(width, 3 * width);
    this.out = new nn.Linear(width, width);
  }

  forward(x: Tensor): Tensor {
    const [q, k, v] = this.qkv.forward(x).chunk(3, -1).map((part) =>
      part.unflatten(-1, [this.heads, x.shape[2] / this.heads]).transpose(1, 2),
    );
    const y = nn.functional.scaled_dot_product_attention(q, k, v);
    return this.out.forward(y.transpose(1, 2).flatten(2));
  }
}

torch.manual_seed(0);
const attention = new Attention(16, 4);
print(attention);
const y = attention.forward(torch.randn([2, 5, 16]));
print(y.shape, y.mean());
y.square().sum().backward();
print(attention.out.bias!.grad);
`,
};

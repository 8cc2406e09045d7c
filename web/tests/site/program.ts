// What record.py's PROGRAM does, as a visitor of the playground writes it.
import { torch, nn, optim, type Tensor } from "torch-webgpu/torch";

declare const print: (...values: unknown[]) => Promise<void>;

const x = torch.arange(12).view(3, 4);
print(x);
print(x.t().to(torch.float32).div(7), x.sum());
print(x.gt(5));

const w: Tensor = torch.tensor(
  [
    [0.5, -1],
    [2, 3],
  ],
  { requires_grad: true },
);
const sines = w.mul(w).sin().sum();
sines.backward();
print(sines);
print(w.grad);

const model = new nn.Linear(2, 1);
model.load_state_dict({ weight: torch.tensor([[0.5, -0.25]]), bias: torch.tensor([0.125]) });
const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 });
const inputs = torch.tensor([
  [1, 2],
  [3, -1],
  [0.5, 0.25],
]);
for (let step: number = 0; step < 3; step++) {
  const loss = nn.functional.mse_loss(model.forward(inputs), torch.ones([3, 1]));
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  print("step", step, loss.detach());
}
print(model.weight);
print(torch.linspace(0, 1, 2000));

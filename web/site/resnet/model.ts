/** ResNet-18 by torchvision's names, as model.py has it. */

import { nn, type Tensor } from "../../torch";

const f = nn.functional;

const conv = (inputs: number, outputs: number, size: number, stride: number, padding: number) =>
  new nn.Conv2d(inputs, outputs, size, { stride, padding, bias: false });

class BasicBlock extends nn.Module {
  conv1: nn.Conv2d;
  bn1: nn.BatchNorm2d;
  conv2: nn.Conv2d;
  bn2: nn.BatchNorm2d;
  downsample: nn.Module | undefined;

  constructor(inputs: number, outputs: number, stride: number) {
    super();
    this.conv1 = conv(inputs, outputs, 3, stride, 1);
    this.bn1 = new nn.BatchNorm2d(outputs);
    this.conv2 = conv(outputs, outputs, 3, 1, 1);
    this.bn2 = new nn.BatchNorm2d(outputs);
    if (stride !== 1 || inputs !== outputs) {
      this.downsample = new nn.Sequential(
        conv(inputs, outputs, 1, stride, 0),
        new nn.BatchNorm2d(outputs),
      );
    }
  }

  override forward(x: Tensor): Tensor {
    const y = f.relu(this.bn1.forward(this.conv1.forward(x)));
    const shortcut = this.downsample === undefined ? x : (this.downsample.forward(x) as Tensor);
    return f.relu(this.bn2.forward(this.conv2.forward(y)).add(shortcut));
  }
}

/** [batch, 3, height, width] images to [batch, classes] logits. */
export class ResNet18 extends nn.Module {
  conv1 = conv(3, 64, 7, 2, 3);
  bn1 = new nn.BatchNorm2d(64);
  layer1 = new nn.Sequential(new BasicBlock(64, 64, 1), new BasicBlock(64, 64, 1));
  layer2 = new nn.Sequential(new BasicBlock(64, 128, 2), new BasicBlock(128, 128, 1));
  layer3 = new nn.Sequential(new BasicBlock(128, 256, 2), new BasicBlock(256, 256, 1));
  layer4 = new nn.Sequential(new BasicBlock(256, 512, 2), new BasicBlock(512, 512, 1));
  fc: nn.Linear;

  constructor(classes: number) {
    super();
    this.fc = new nn.Linear(512, classes);
  }

  override forward(x: Tensor): Tensor {
    let y = f.relu(this.bn1.forward(this.conv1.forward(x)));
    y = f.max_pool2d(y, 3, 2, 1);
    for (const layer of [this.layer1, this.layer2, this.layer3, this.layer4]) {
      y = layer.forward(y);
    }
    return this.fc.forward(f.adaptive_avg_pool2d(y, 1).flatten(1));
  }
}

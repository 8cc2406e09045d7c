// Gradient of the negative log likelihood: nonzero at each target's class only. One invocation per
// element of the gradient.
//
// @operand grad_x: out float // channels are classes
// @operand grad_out: in like grad_x
// @operand label: in {i64, u8}
// @operand total: in like grad_x // the sum of the weights
// @operand weight: in like grad_x optional // of the classes

// The vectors of strides are in the order depth, row, column, channel.
struct Params {
  count: u32, // elements of grad_x
  classes: u32,
  ignored_low: u32,
  ignored_high: u32,
  reduction: u32, // at::Reduction: 0 none, 1 mean, 2 sum
  weight_step: u32,
  channels_last: u32,
  grad_x_batch: u32,
  label_batch: u32,
  grad_out_batch: u32,
  size: vec4<u32>,
  grad_x_step: vec4<u32>,
  label_step: vec4<u32>,
  grad_out_step: vec4<u32>,
}

fn label_at(cell: Cell) -> vec2<u32> {
  let label = load_label(element_of(layout_of(p.label_at, p.label_batch, p.label_step), cell));
  @if(label_is_u8) return l_from_i(label);
  @else return label;
}

fn class_weight(class_index: u32) -> f32 {
  @if(has_weight) return load_weight(p.weight_at + class_index * p.weight_step);
  @else return 1.0;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.classes, p.size.xyz, p.channels_last != 0u);
  var at = cell;
  at.channel = 0u;
  let label = label_at(at);
  let ignored = vec2<u32>(p.ignored_low, p.ignored_high);
  var gradient = 0.0;
  if (all(label == vec2<u32>(cell.channel, 0u)) && any(label != ignored)) {
    let grad_out = layout_of(p.grad_out_at, p.grad_out_batch, p.grad_out_step);
    var scale = load_grad_out(select(element_of(grad_out, at), p.grad_out_at, p.reduction != 0u));
    if (p.reduction == 1u) {
      scale = div_f(scale, load_total(p.total_at));
    }
    gradient = -class_weight(cell.channel) * scale;
  }
  let grad_x = layout_of(p.grad_x_at, p.grad_x_batch, p.grad_x_step);
  store_grad_x(element_of(grad_x, cell), gradient);
}

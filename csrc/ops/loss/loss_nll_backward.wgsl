// Gradient of the negative log likelihood: nonzero at each target's class only. One invocation per
// element of the gradient.

struct Params {
  grad_x: Layout, // channels are classes
  label: Layout,
  grad_out: Layout,
  size: vec3<u32>,
  count: u32,
  ignored: vec2<u32>,
  classes: u32,
  channels_last: u32,
  weight_offset: u32,
  weight_step: u32,
  total_offset: u32,
  reduction: u32, // at::Reduction: 0 none, 1 mean, 2 sum
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
fn store_grad_x(i: u32, v: f32) { b0[i] = v; }
fn load_grad_out(i: u32) -> f32 { return b1[i]; }
fn load_label(i: u32) -> vec2<u32> { return b2[i]; }
fn load_total(i: u32) -> f32 { return b3[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook class_weight
fn class_weight(class_index: u32) -> f32 { return 1.0; }
// @end

// @hook label_at
fn label_at(i: u32) -> vec2<u32> { return load_label(i); }
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let cell = cell_of(i, p.classes, p.size, p.channels_last != 0u);
  var at = cell;
  at.channel = 0u;
  let label = label_at(element_of(p.label, at));
  var gradient = 0.0;
  if (all(label == vec2<u32>(cell.channel, 0u)) && any(label != p.ignored)) {
    var scale = load_grad_out(select(element_of(p.grad_out, at), p.grad_out.offset,
                                     p.reduction != 0u));
    if (p.reduction == 1u) {
      scale = div_f(scale, load_total(p.total_offset));
    }
    gradient = -class_weight(cell.channel) * scale;
  }
  store_grad_x(element_of(p.grad_x, cell), gradient);
}

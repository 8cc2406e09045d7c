// Negative log likelihood: the input at each target's class, weighted by class, then summed up or
// averaged. Many terms are summed in two stages: sums of workgroups, and the sum of those.
//
// @operand out: out float
// @operand total: out like out         // the sum of the weights
// @operand partial: out {f32} optional // sum and weight of each workgroup
// @operand x: in like out optional     // channels are classes
// @operand label: in {i64, u8} optional
// @operand weight: in like out optional // of the classes
// @const   stage: {whole, parts, rest}  // all terms; sums of workgroups; the sum of those
// @require has_x != rest
// @require has_label == has_x
// @require has_partial != whole
// @require !(rest && has_weight)
// @errors

// The vectors of strides are in the order depth, row, column, channel.
struct Params {
  count: u32, // terms
  classes: u32,
  ignored_low: u32,
  ignored_high: u32,
  reduction: u32, // at::Reduction: 0 none, 1 mean, 2 sum
  weight_step: u32,
  x_batch: u32,
  label_batch: u32,
  out_batch: u32,
  error: u32, // the code for a label that is no class
  size: vec4<u32>,
  x_step: vec4<u32>,
  label_step: vec4<u32>,
  out_step: vec4<u32>,
}

fn out_layout() -> Layout { return layout_of(p.out_at, p.out_batch, p.out_step); }

@if(!rest)
fn label_at(cell: Cell) -> vec2<u32> {
  let label = load_label(element_of(layout_of(p.label_at, p.label_batch, p.label_step), cell));
  @if(label_is_u8) return l_from_i(label);
  @else return label;
}

@if(!rest)
fn class_weight(class_index: u32) -> f32 {
  @if(has_weight) return load_weight(p.weight_at + class_index * p.weight_step);
  @else return 1.0;
}

// Term i and its weight.
@if(rest)
fn term(i: u32) -> vec2<f32> {
  return vec2<f32>(load_partial(p.partial_at + i * 2u), load_partial(p.partial_at + i * 2u + 1u));
}
@else
fn term(i: u32) -> vec2<f32> {
  let cell = cell_of(i, 1u, p.size.xyz, false);
  let label = label_at(cell);
  if (all(label == vec2<u32>(p.ignored_low, p.ignored_high))) {
    return vec2<f32>(0.0);
  }
  if (label.y != 0u || label.x >= p.classes) {
    atomicMax(&errors[0], p.error);
    return vec2<f32>(0.0);
  }
  let weight = class_weight(label.x);
  let x = element_of(layout_of(p.x_at, p.x_batch, p.x_step), cell) + label.x * p.x_step.w;
  return vec2<f32>(-weight * load_x(x), weight);
}

var<workgroup> sums: array<vec2<f32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let first = (group.y * groups.x + group.x) * 256u + local.x;
  if (p.reduction == 0u) {
    if (first < p.count) {
      store_out(element_of(out_layout(), cell_of(first, 1u, p.size.xyz, false)), term(first).x);
    }
    if (first == 0u) {
      store_total(p.total_at, 0.0);
    }
    return;
  }
  var sum = vec2<f32>(0.0);
  for (var i = first; i < p.count; i += groups.x * groups.y * 256u) {
    sum += term(i);
  }
  sums[local.x] = sum;
  for (var half = 128u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (local.x < half) {
      sums[local.x] += sums[local.x + half];
    }
  }
  if (local.x == 0u) {
    @if(parts) {
      let at = p.partial_at + (group.y * groups.x + group.x) * 2u;
      store_partial(at, sums[0].x);
      store_partial(at + 1u, sums[0].y);
    }
    @else {
      store_total(p.total_at, sums[0].y);
      store_out(p.out_at, select(sums[0].x, div_f(sums[0].x, sums[0].y), p.reduction == 1u));
    }
  }
}

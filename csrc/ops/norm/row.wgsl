// Rows whose elements several invocations of a workgroup of 256 share: `lanes` of them (a power of two)
// combine a value each. Invocation `lane` of a row keeps its value in `slot`; neighbouring lanes of a row are
// `stride` slots apart.

var<workgroup> row_values: array<f32, 256>;

var<workgroup> row_pairs: array<vec2<f32>, 256>;

fn row_max(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  var total = v;
  workgroupBarrier();
  row_values[slot] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total = max_f(total, row_values[slot + step * stride]);
      row_values[slot] = total;
    }
  }
  workgroupBarrier();
  return row_values[slot - lane * stride];
}

fn row_sum(v: f32, slot: u32, stride: u32, lane: u32, lanes: u32) -> f32 {
  var total = v;
  workgroupBarrier();
  row_values[slot] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total += row_values[slot + step * stride];
      row_values[slot] = total;
    }
  }
  workgroupBarrier();
  return row_values[slot - lane * stride];
}

fn row_sum_of_pairs(v: vec2<f32>, slot: u32, lane: u32, lanes: u32) -> vec2<f32> {
  var total = v;
  workgroupBarrier();
  row_pairs[slot] = total;
  for (var step = lanes >> 1u; step > 0u; step >>= 1u) {
    workgroupBarrier();
    if (lane < step) {
      total += row_pairs[slot + step];
      row_pairs[slot] = total;
    }
  }
  workgroupBarrier();
  return row_pairs[slot - lane];
}

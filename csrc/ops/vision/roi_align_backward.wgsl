// Gradient of roi_align and ps_roi_align: each cell adds to the pixels beside its samples. Regions overlap as they
// like, so the sums take atomics.
//
// @operand grad_in: sum {f32}
// @operand out: in float // the gradient of the result
// @operand rois: in like out

import package::vision::roi::{Params, Bin, bin_of};
import package::vision::roi_samples::{rows_of, columns_of, sample_at, taps_of};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let bin = bin_of(i);
  if (!bin.exists) {
    return;
  }
  let rows = rows_of(bin);
  let columns = columns_of(bin);
  let plane = p.grad_in_at + bin.plane;
  let share = div_f(load_out(p.out_at + i), rows.grid * columns.grid);
  for (var iy = rows.first; iy < rows.last; iy++) {
    let y = taps_of(sample_at(rows, iy), p.height);
    if (!y.inside) {
      continue;
    }
    for (var ix = columns.first; ix < columns.last; ix++) {
      let x = taps_of(sample_at(columns, ix), p.width);
      if (!x.inside) {
        continue;
      }
      let above = plane + y.low * p.width;
      let below = plane + y.high * p.width;
      atomic_add_grad_in(above + x.low, share * (1.0 - y.weight) * (1.0 - x.weight));
      atomic_add_grad_in(above + x.high, share * (1.0 - y.weight) * x.weight);
      atomic_add_grad_in(below + x.low, share * y.weight * (1.0 - x.weight));
      atomic_add_grad_in(below + x.high, share * y.weight * x.weight);
    }
  }
}

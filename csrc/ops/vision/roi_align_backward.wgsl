// Gradient of roi_align and ps_roi_align: each cell adds to the pixels beside its samples. Regions overlap as they
// like, so the sums take atomics.
//
// @operand grad_in: sum {f32}
// @operand out: in float // the gradient of the result
// @operand rois: in like out

import package::vision::roi::{Params, Bin, bin_of};
import package::vision::roi_samples::{Taps, rows_of, columns_of, visit_samples};

var<private> share: f32 = 0.0; // of a sample in the gradient of its cell

fn visit(above: u32, below: u32, y: Taps, x: Taps) {
  atomic_add_grad_in(above + x.low, share * (1.0 - y.weight) * (1.0 - x.weight));
  atomic_add_grad_in(above + x.high, share * (1.0 - y.weight) * x.weight);
  atomic_add_grad_in(below + x.low, share * y.weight * (1.0 - x.weight));
  atomic_add_grad_in(below + x.high, share * y.weight * x.weight);
}

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
  share = div_f(load_out(p.out_at + i), rows.grid * columns.grid);
  visit_samples(rows, columns, p.grad_in_at + bin.plane);
}

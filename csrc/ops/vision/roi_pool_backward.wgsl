// Gradient of roi_pool and ps_roi_pool: each cell adds to the pixel of its maximum, or to all pixels of its bin.
// Regions overlap as they like, so the sums take atomics.
//
// @operand grad_in: sum {f32}
// @operand out: in float // the gradient of the result
// @operand rois: in like out
// @operand place: in {i32} optional
// @const   sensitive: bool
// @require has_place != sensitive

import package::vision::roi::{Params, Bin, bin_of};
@if(sensitive) import package::vision::roi_pixels::{rows_of, columns_of};

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
  let gradient = load_out(p.out_at + i);
  @if(sensitive) {
    let rows = rows_of(bin, 0u);
    let columns = columns_of(bin, 0u);
    let share = div_f(gradient, f32((rows.y - rows.x) * (columns.y - columns.x)));
    for (var y = rows.x; y < rows.y; y++) {
      for (var x = columns.x; x < columns.y; x++) {
        atomic_add_grad_in(p.grad_in_at + bin.plane + u32(y) * p.width + u32(x), share);
      }
    }
  }
  @else {
    // -1 becomes a large number.
    let place = u32(load_place(p.place_at + i));
    if (place < p.height * p.width) {
      atomic_add_grad_in(p.grad_in_at + bin.plane + place, gradient);
    }
  }
}

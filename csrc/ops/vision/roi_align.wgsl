// roi_align and ps_roi_align: each cell is the average of samples of its bin. One invocation per cell.
//
// @operand out: out float
// @operand in: in like out
// @operand rois: in like out
// @operand mapping: out {i32} optional // the channel of each cell
// @const   sensitive: bool
// @require has_mapping == sensitive

import package::vision::roi::{Params, Bin, bin_of};
import package::vision::roi_samples::{Taps, rows_of, columns_of, visit_samples};
@if(sensitive) import package::vision::roi::{channel_of};

var<private> sum: f32 = 0.0;

fn visit(above: u32, below: u32, y: Taps, x: Taps) {
  sum += (1.0 - y.weight) * (1.0 - x.weight) * load_in(above + x.low) +
         (1.0 - y.weight) * x.weight * load_in(above + x.high) +
         y.weight * (1.0 - x.weight) * load_in(below + x.low) +
         y.weight * x.weight * load_in(below + x.high);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  @if(sensitive) store_mapping(p.mapping_at + i, channel_of(i));
  let bin = bin_of(i);
  if (!bin.exists) {
    store_out(p.out_at + i, 0.0);
    return;
  }
  let rows = rows_of(bin);
  let columns = columns_of(bin);
  visit_samples(rows, columns, p.in_at + bin.plane);
  var count = rows.grid * columns.grid;
  @if(!sensitive) {
    count = max(count, 1.0);
  }
  // An empty bin of ps_roi_align is 0 / 0.
  if (count == 0.0) {
    store_out(p.out_at + i, nan_f());
  } else {
    store_out(p.out_at + i, div_f(sum, count));
  }
}

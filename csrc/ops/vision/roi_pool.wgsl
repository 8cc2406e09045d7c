// roi_pool and ps_roi_pool: the maximum of a bin's pixels and its place, or their average and its channel. One
// invocation per cell.
//
// @operand out: out float
// @operand in: in like out
// @operand rois: in like out
// @operand place: out {i32} // of the maximum in its plane, -1: none; or the channel

import package::vision::roi::{Params, Bin, bin_of};
import package::vision::roi_pixels::{rows_of, columns_of};
@if(sensitive) import package::vision::roi::{channel_of};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let bin = bin_of(i);
  var result = 0.0;
  var place = -1;
  if (bin.exists) {
    @if(sensitive) {
      let rows = rows_of(bin, 1u);
      let columns = columns_of(bin, 1u);
      for (var y = rows.x; y < rows.y; y++) {
        for (var x = columns.x; x < columns.y; x++) {
          result += load_in(p.in_at + bin.plane + u32(y) * p.width + u32(x));
        }
      }
      if (rows.y > rows.x && columns.y > columns.x) {
        result = div_f(result, f32((rows.y - rows.x) * (columns.y - columns.x)));
      }
    }
    @else {
      let rows = rows_of(bin, 0u);
      let columns = columns_of(bin, 0u);
      if (rows.y > rows.x && columns.y > columns.x) {
        result = -3.4028234663852886e38;
      }
      for (var y = rows.x; y < rows.y; y++) {
        for (var x = columns.x; x < columns.y; x++) {
          let at = u32(y) * p.width + u32(x);
          let value = load_in(p.in_at + bin.plane + at);
          if (value > result && !is_nan_f(value)) {
            result = value;
            place = i32(at);
          }
        }
      }
    }
  }
  @if(sensitive) {
    place = channel_of(i);
  }
  store_out(p.out_at + i, result);
  store_place(p.place_at + i, place);
}

// Gradients of deform_conv2d by its input, offsets and mask, from the gradient of the columns. One invocation per tap
// of an offset group, over the channels of the group. Taps fall where their offsets say, so the input's gradient is
// summed with atomics.
//
// @operand grad_in: sum {f32}
// @operand grad_offset: out float
// @operand grad_mask: out like grad_offset optional
// @operand columns: in like grad_offset // the gradient of the columns of this part
// @operand in: in like grad_offset
// @operand offset: in like grad_offset
// @operand mask: in like grad_offset optional
// @require has_grad_mask == has_mask

import package::vision::deform::{Params, Tap, area, offset_place, mask_place, point_of, corners_of, corner_exists, corner_place};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let image = i / p.places / (p.groups * area());
  var tap = Tap();
  tap.place = p.first_place + i % p.places;
  tap.image = p.first_image + image;
  tap.group = i / p.places / area() % p.groups;
  tap.number = i / p.places % area();
  var factor = 1.0;
  @if(has_mask) {
    factor = load_mask(p.mask_at + mask_place(tap));
  }
  let corners = corners_of(point_of(tap));
  var slope = vec2<f32>(0.0);
  var mask_slope = 0.0;
  if (corners.near) {
    let members = p.channels / p.groups;
    for (var c = 0u; c < members; c++) {
      let channel = tap.group * members + c;
      let row = (image * p.channels + channel) * area() + tap.number;
      let gradient = load_columns(p.columns_at + row * p.places + i % p.places);
      let plane = (tap.image * p.channels + channel) * p.height * p.width;
      for (var dy = 0; dy < 2; dy++) {
        for (var dx = 0; dx < 2; dx++) {
          if (!corner_exists(corners, dy, dx)) {
            continue;
          }
          let at = plane + corner_place(corners, dy, dx);
          let value = load_in(p.in_at + at);
          let y = select(1.0 - corners.weight.x, corners.weight.x, dy == 1);
          let x = select(1.0 - corners.weight.y, corners.weight.y, dx == 1);
          atomic_add_grad_in(p.grad_in_at + at, factor * gradient * y * x);
          mask_slope += gradient * y * x * value;
          slope += gradient * value * vec2<f32>(select(-x, x, dy == 1), select(-y, y, dx == 1));
        }
      }
    }
  }
  // Both axes of an offset lie like the offset itself.
  let begin = offset_place(tap, 0u) - p.offset_at + p.grad_offset_at;
  store_grad_offset(begin, factor * slope.x);
  store_grad_offset(begin + p.all_places, factor * slope.y);
  @if(has_mask) store_grad_mask(p.grad_mask_at + mask_place(tap), mask_slope);
}

// The columns of deform_conv2d: for each image of this part, rows of channels and taps, columns of places. One
// invocation per element.
//
// @operand columns: out float
// @operand in: in like columns
// @operand offset: in like columns
// @operand mask: in like columns optional

import package::vision::deform::{Params, Tap, area, mask_place, point_of, corners_of, corner_exists, corner_place, Corners};

fn pixel(plane: u32, corners: Corners, dy: i32, dx: i32) -> f32 {
  if (!corner_exists(corners, dy, dx)) {
    return 0.0;
  }
  return load_in(plane + corner_place(corners, dy, dx));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let row = i / p.places % (p.channels * area());
  let channel = row / area();
  var tap = Tap();
  tap.place = p.first_place + i % p.places;
  tap.image = p.first_image + i / p.places / (p.channels * area());
  tap.group = channel / (p.channels / p.groups);
  tap.number = row % area();
  let corners = corners_of(point_of(tap));
  var value = 0.0;
  if (corners.near) {
    let plane = p.in_at + (tap.image * p.channels + channel) * p.height * p.width;
    let w = corners.weight;
    value = (1.0 - w.x) * (1.0 - w.y) * pixel(plane, corners, 0, 0) +
            (1.0 - w.x) * w.y * pixel(plane, corners, 0, 1) +
            w.x * (1.0 - w.y) * pixel(plane, corners, 1, 0) +
            w.x * w.y * pixel(plane, corners, 1, 1);
  }
  @if(has_mask) {
    value *= load_mask(p.mask_at + mask_place(tap));
  }
  store_columns(p.columns_at + i, value);
}

// fold: each pixel sums its copies in the columns. One invocation per pixel.
//
// @operand image: out {float, i32, i16, i8, u8, bool, c64}
// @operand columns: in like image

import package::movement::fold::{Params};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let area = p.sizes.x * p.sizes.y;
  let pixel = vec2<u32>(i % area / p.sizes.y, i % area % p.sizes.y);
  let channel = i / area % p.planes;
  let batch = i / area / p.planes;
  var sum = image_t();
  for (var y = 0u; y < p.kernel.x; y++) {
    for (var x = 0u; x < p.kernel.y; x++) {
      // A negative distance wraps around to a large number, which the test for the last place rejects as well.
      let distance = pixel + p.sliding.zw - vec2<u32>(y, x) * p.kernel.zw;
      let place = distance / p.sliding.xy;
      if (all(place * p.sliding.xy == distance) && all(place < p.sizes.zw)) {
        let row = (channel * p.kernel.x + y) * p.kernel.y + x;
        sum += load_columns(p.columns_at + batch * p.columns.x + row * p.columns.y +
                            (place.x * p.sizes.w + place.y) * p.columns.z);
      }
    }
  }
  store_image(p.image_at + batch * p.image.x + channel * p.image.y + pixel.x * p.image.z +
                  pixel.y * p.image.w,
              sum);
}

// unfold: the columns of images, one invocation per element of them. What lies in the padding is zero.
//
// @operand columns: out bits
// @operand image: in like columns

import package::movement::fold::{Params};

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) local: vec3<u32>) {
  let i = (group.y * groups.x + group.x) * 256u + local.x;
  if (i >= p.count) {
    return;
  }
  let places = p.sizes.z * p.sizes.w;
  let number = i % places;
  let row = i / places % p.planes;
  let batch = i / places / p.planes;
  let area = p.kernel.x * p.kernel.y;
  let tap = vec2<u32>(row % area / p.kernel.y, row % area % p.kernel.y);
  let place = vec2<u32>(number / p.sizes.w, number % p.sizes.w);
  // A negative coordinate wraps around to a large number, which the test for the image's size rejects as well.
  let pixel = place * p.sliding.xy + tap * p.kernel.zw - p.sliding.zw;
  var value = columns_t();
  if (all(pixel < p.sizes.xy)) {
    value = load_image(p.image_at + batch * p.image.x + row / area * p.image.y +
                       pixel.x * p.image.z + pixel.y * p.image.w);
  }
  store_columns(p.columns_at + batch * p.columns.x + row * p.columns.y + number * p.columns.z,
                value);
}

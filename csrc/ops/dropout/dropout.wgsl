// Dropout in one pass: draws, scales what is kept, and writes the mask for the backward pass. The outputs are new and
// dense. An invocation computes four elements and writes whole words. The unused rest of the last word may be
// overwritten.
//
// @operand out: words float
// @operand mask: words {bool}
// @operand x: in like out

struct Params {
  count: u32,
  keep: f32, // probability
  scale: f32,
  philox: vec4<u32>, // key, counter
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let id = (group.y * groups.x + group.x) * 256u + local;
  let start = id * 4u;
  if (start >= p.count) {
    return;
  }
  let left = min(p.count - start, 4u);
  let random = philox_at(p.philox.xy, id, p.philox.zw);
  var v = vec4<f32>(0.0);
  var mask = vec4<i32>(0);
  for (var k = 0u; k < left; k++) {
    let kept = uniform_f(random[k]) < p.keep;
    // A select, not a product, so that a dropped element is 0 even if the input is not finite.
    v[k] = select(0.0, load_x(p.x_at + start + k) * p.scale, kept);
    mask[k] = select(0, 1, kept);
  }
  store4_mask(p.mask_at + start, mask.x, mask.y, mask.z, mask.w);
  let at = p.out_at + start;
  if (left == 4u) {
    store4_out(at, v.x, v.y, v.z, v.w);
    return;
  }
  @if(out_is_f32) {
    for (var k = 0u; k < left; k++) {
      store_out(at + k, v[k]);
    }
  }
  @else {
    store2_out(at, v.x, v.y);
    if (left == 3u) {
      store2_out(at + 2u, v.z, v.w);
    }
  }
}

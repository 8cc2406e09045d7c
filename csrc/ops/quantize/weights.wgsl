// The parameters of the products with packed weights, and how weights are read.

struct Params {
  m: u32,
  n: u32,
  k: u32,
  group_size: u32, // weights along K that share a scale
  a_row: u32,      // distance of the rows of a
  tiles_n: u32,
}

// What a workgroup does before it reads weights: nothing here, but other kernels that take the main function from
// weight_mm.wgsl have tables.
fn prepare(local: u32) {}

// Four weights of row n, from column k on, a multiple of 4; those beyond the row are not used.
fn weights(n: u32, k: u32) -> vec4<f32> {
  @if(int4) {
    let word = u32(load_w(p.w_at + (n * p.k + k) / 8u)) >> (k % 8u * 4u);
    let at = p.scale_at + (k / p.group_size * p.n + n) * 2u;
    return unpack_signed_nibbles(word) * load_scale(at) + vec4<f32>(load_scale(at + 1u));
  }
  @elif(w_is_i8) {
    let i = p.w_at + n * p.k + k;
    let last = i + min(p.k - k, 4u) - 1u;
    return vec4<f32>(vec4<i32>(load_w(i), load_w(min(i + 1u, last)), load_w(min(i + 2u, last)),
                               load_w(last)));
  }
  @else return unpack_signed_bytes(load_w(p.w_at + (n * p.k + k) / 4u));
}

// The result from the sum of row n.
fn finish(sum: f32, n: u32) -> f32 {
  @if(int8) return sum * load_scale(p.scale_at + n);
  @else return sum;
}

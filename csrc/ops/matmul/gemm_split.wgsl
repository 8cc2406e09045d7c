// Splits float32 matrices for gemm_high.wgsl: each number, times a power of two, is the sum of two float16 numbers. A row of
// A, or a column of B, becomes three times its elements along K: the high parts, the high and the low ones of A; the high,
// the low and the high ones of B. So the products that are added up along K are high * high, high * low and low * high.
//
// The power of two brings the largest magnitude to 2^14 up to 2^15. Parts behind the end of K are zero. Where there is an
// infinity or NaN, the high part is NaN.
//
// @operand out: out {bits32}
// @operand scales: out {f32} // what sums of a row are to be multiplied with
// @operand in: in {f32}
// @const   along_k: bool // neighbours in memory lie along K
// @const   is_b: bool
// @grid groups p.batches * ceil_div(p.rows, 8)

struct Params {
  batches: u32,
  rows: u32,
  k: u32,
  k_padded: u32, // even
  in_batch: u32, // strides
  in_row: u32,
  in_k: u32,
  first: u32,    // of the scales
}

// Of magnitudes, as bits.
var<workgroup> largest: array<atomic<u32>, 8>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  let blocks = (p.rows + 7u) / 8u;
  let batch = id / blocks;
  if (batch >= p.batches) {
    return;
  }
  // 32 invocations a row, two elements each.
  @if(along_k) let lane = t % 32u;
  @if(along_k) let row = t / 32u;
  @if(!along_k) let lane = t / 8u;
  @if(!along_k) let row = t % 8u;
  let line = id % blocks * 8u + row;
  let exists = line < p.rows;
  let start = p.in_at + batch * p.in_batch + line * p.in_row;
  if (t < 8u) {
    atomicStore(&largest[t], 0u);
  }
  workgroupBarrier();
  if (exists) {
    var most = 0u;
    for (var k = lane; k < p.k; k += 32u) {
      most = max(most, bitcast<u32>(load_in(start + k * p.in_k)) & 0x7fffffffu);
    }
    atomicMax(&largest[row], most);
  }
  workgroupBarrier();
  if (!exists) {
    return;
  }
  // Both the factor and its inverse are normal numbers.
  let exponent = clamp(atomicLoad(&largest[row]) >> 23u, 15u, 254u);
  let factor = bitcast<f32>((268u - exponent) << 23u);
  if (lane == 0u) {
    store_scales(p.scales_at + p.first + batch * p.rows + line, bitcast<f32>((exponent - 14u) << 23u));
  }
  let words = p.k_padded / 2u;
  let to = p.out_at + (batch * p.rows + line) * 3u * words;
  for (var word = lane; word < words; word += 32u) {
    var high = vec2<f32>();
    var low = vec2<f32>();
    var special = 0u;
    for (var j = 0u; j < 2u; j++) {
      let k = word * 2u + j;
      if (k < p.k) {
        let given = load_in(start + k * p.in_k);
        if ((bitcast<u32>(given) & 0x7f800000u) == 0x7f800000u) {
          special |= 0x7e00u << (j * 16u);
        } else {
          // Rounded to the ten bits of float16's fraction.
          let value = given * factor;
          high[j] = bitcast<f32>((bitcast<u32>(value) + 0x1000u) & 0xffffe000u);
          low[j] = value - high[j];
        }
      }
    }
    let highs = pack2x16float(high) | special;
    let lows = pack2x16float(low);
    store_out(to + word, highs);
    @if(is_b) store_out(to + words + word, lows);
    @else store_out(to + words + word, highs);
    @if(is_b) store_out(to + 2u * words + word, highs);
    @else store_out(to + 2u * words + word, lows);
  }
}

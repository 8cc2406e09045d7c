// float32 matrices as float16 numbers, for gemm_high.wgsl. Each row of A, or column of B, is multiplied with a power of two,
// which brings its largest magnitude to 2^14 up to 2^15, and its numbers are rounded to float16.
//
// Elements behind the end of K are zero. Where there is an infinity or NaN, the float16 number is NaN.
//
// @operand out: out {bits32}
// @operand scales: out {f32} // what sums of a row are to be multiplied with
// @operand in: in {f32}
// @const   along_k: bool // neighbours in memory lie along K
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

const together = 4u; // loads that do not wait for each other

// Of magnitudes, as bits.
var<workgroup> largest: array<atomic<u32>, 8>;

// Two neighbours along K, from column k on.
fn two_numbers(start: u32, k: u32) -> vec2<f32> {
  let last = p.k - 1u;
  return vec2<f32>(load_in(start + min(k, last) * p.in_k), load_in(start + min(k + 1u, last) * p.in_k));
}

// The same as float16 numbers.
fn rounded(given: vec2<f32>, k: u32, factor: f32) -> u32 {
  let bits = bitcast<vec2<u32>>(given);
  // To the ten bits of float16's fraction, because pack2x16float may round as it likes.
  let values = bitcast<vec2<f32>>((bitcast<vec2<u32>>(given * factor) + 0x1000u) & vec2<u32>(0xffffe000u));
  let is_finite = (bits & vec2<u32>(0x7f800000u)) != vec2<u32>(0x7f800000u);
  let exists = vec2<u32>(k, k + 1u) < vec2<u32>(p.k);
  let packed = pack2x16float(select(vec2<f32>(), values, is_finite & exists));
  let special = select(vec2<u32>(), vec2<u32>(0x7e00u, 0x7e000000u), !is_finite & exists);
  return packed | special.x | special.y;
}

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
    var most = vec2<u32>();
    for (var k = lane * 2u; k < p.k; k += 64u * together) {
      for (var j = 0u; j < together; j++) {
        most = max(most, bitcast<vec2<u32>>(two_numbers(start, k + 64u * j)) & vec2<u32>(0x7fffffffu));
      }
    }
    atomicMax(&largest[row], max(most.x, most.y));
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
  let to = p.out_at + (batch * p.rows + line) * (p.k_padded / 2u);
  for (var k = lane * 2u; k < p.k_padded; k += 64u * together) {
    var numbers = array<vec2<f32>, together>();
    for (var j = 0u; j < together; j++) {
      numbers[j] = two_numbers(start, k + 64u * j);
    }
    for (var j = 0u; j < together; j++) {
      let at = k + 64u * j;
      if (at < p.k_padded) {
        store_out(to + at / 2u, rounded(numbers[j], at, factor));
      }
    }
  }
}

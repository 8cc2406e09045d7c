// How gemm_bf16.wgsl multiplies bfloat16 matrices as float16 ones, with the exact products.
//
// Windows. The normal numbers of float16 span 30 binades, a window. A bfloat16 in the window is exactly a float16
// times a power of two. Window 0 of a workgroup ends at the largest finite magnitude in its rows of A, or columns of
// B. Window i lies i * 30 binades below.
//
// Passes. A pass over K multiplies what lies in window i of A with what lies in window j of B. The rest is zero there.
// One pass is enough where both operands lie in window 0. A pass leaves out the blocks of K that have nothing in its
// windows. Where gemm_halves.wgsl made copies, the pass over windows 0 comes last and reads these. Windows then end at the
// largest magnitudes in all of K, else at those in the workgroup's piece of K.
//
// Levels. The sums of a pass have the unit 2^(-30 * level), with level = i + j. Passes go from the deepest level to
// level 0. Before a level is left, the sums are multiplied by 2^-30. Nothing overflows: a sum stays below K * 2^35. A
// product of level 3 is at least 2^-28 * 2^-90 = 2^-118 in units of level 0, which float32 holds. Products below
// 2^-126 there may be lost. The largest elements of A and B have a product of 2^30 at least. So an element of C is off
// by (K + 5) * 2^-156 * max|A| * max|B| at most, beside the roundings of float32 sums. Levels below `deepest` are left out:
// their products are below 2^(32 - 180).
//
// Infinities and NaN are zero in these passes. Two passes come before: the first with 1 or -1 for each finite number
// other than zero, the second with the same and zero for the others, and with the opposite sign. Where there is no
// infinity and no NaN, their sums cancel, exactly.
//
// A block's range is a word: the largest finite magnitude in bits 16 to 30, the smallest one other than zero in bits 0
// to 14, and bit 31 if there is an infinity or NaN. Without finite numbers other than zero, the former is 0.
//
// @operand ranges: in of u32

const window = 30;

const level_down = 0x1p-30f;

const deepest = 5;

fn range_word(largest: u32, smallest: u32, special: u32) -> u32 {
  return (special << 31u) | (largest << 16u) | smallest;
}

// Of the magnitudes of bfloat16 that an invocation has seen.
struct Seen {
  largest: u32,  // finite
  smallest: u32, // less one, so that zero is the largest of all
  any: u32,      // the largest, infinity and NaN too
}

const nothing_seen = Seen(0u, 0xffffffffu, 0u);

// With both elements of a word.
fn see(seen: Seen, word: u32) -> Seen {
  let low = word & 0x7fffu;
  let high = (word >> 16u) & 0x7fffu;
  return Seen(max(seen.largest, max(select(0u, low, low < 0x7f80u), select(0u, high, high < 0x7f80u))),
              min(seen.smallest, min(low - 1u, high - 1u)), max(seen.any, max(low, high)));
}

fn see_group(seen: Seen, group: vec4<u32>) -> Seen {
  return see(see(see(see(seen, group.x), group.y), group.z), group.w);
}

fn largest_of(range: u32) -> u32 {
  return (range >> 16u) & 0x7fffu;
}

// The exponent of a finite bfloat16 other than zero, biased by 127. Below 1 it is a subnormal number.
fn exponent_of(magnitude: u32) -> i32 {
  if (magnitude < 0x80u) {
    return i32(firstLeadingBit(magnitude)) - 6;
  }
  return i32(magnitude >> 7u);
}

// Where window 0 ends.
fn top_of(range: u32) -> i32 {
  if (largest_of(range) == 0u) {
    return 127;
  }
  return exponent_of(largest_of(range));
}

// The last window that holds something.
fn last_window_of(range: u32) -> i32 {
  if (largest_of(range) == 0u) {
    return 0;
  }
  return (top_of(range) - exponent_of(range & 0x7fffu)) / window;
}

// Whether a block may hold numbers of the window that ends at `top`.
fn reaches(range: u32, top: i32) -> bool {
  return largest_of(range) != 0u && exponent_of(largest_of(range)) > top - window &&
         exponent_of(range & 0x7fffu) <= top;
}

// What to multiply the float32 values of a block with, if all of them lie in the window that ends at `top` and they and
// the factor are normal numbers. Else 0.
fn factor_of(range: u32, top: i32) -> f32 {
  let least = exponent_of(range & 0x7fffu);
  let fits = largest_of(range) == 0u || (top_of(range) <= top && least > top - window && least >= 1);
  if (range >> 31u == 1u || !fits || top < 15) {
    return 0.0;
  }
  return bitcast<f32>(u32(269 - top) << 23u); // 2^(142 - top): the top becomes 2^15
}

// 2^exponent, in two factors, of which both are normal numbers. A sum is below 2^64. So below 2^-252 it becomes zero.
fn power_of_two(exponent: i32) -> vec2<f32> {
  let bounded = max(exponent, -252);
  let half = bounded / 2;
  return bitcast<vec2<f32>>(vec2<u32>(vec2<i32>(half, bounded - half) + 127) << vec2<u32>(23u));
}

// ---- What a workgroup multiplies.

struct Windows {
  k_begin: u32,
  k_end: u32,
  a_ranges: u32, // where the ranges of its rows of A start
  b_ranges: u32,
  a_top: i32,
  b_top: i32,
  a_last: i32,   // window
  b_last: i32,
  special: u32,  // 1: there are infinities or NaN
  a_factor: f32, // of all blocks, if this and the next are not 0: there is one pass
  b_factor: f32,
}

// Not in registers, because one pass needs little of it.
var<workgroup> windows: Windows;

// A step of K in a pass.
struct Step {
  k: u32,
  special: u32, // 2, 1: passes for infinities and NaN, 0: others
  level: i32,
  a_window: i32,
  a_factor: f32, // 0: only some elements lie in the window
  b_factor: f32,
  is_only_pass: bool,
}

var<workgroup> largest: array<atomic<u32>, 2>; // of A, of B

var<workgroup> smallest: array<atomic<u32>, 2>;

var<workgroup> special: array<atomic<u32>, 2>;

fn add_range(which: u32, range: u32) {
  atomicMax(&largest[which], largest_of(range));
  atomicMin(&smallest[which], range & 0x7fffu);
  atomicMax(&special[which], range >> 31u);
}

fn range_of(which: u32) -> u32 {
  return range_word(atomicLoad(&largest[which]), atomicLoad(&smallest[which]), atomicLoad(&special[which]));
}

// Of 128 rows of A from m0, and 128 columns of B from n0. Finds the first step of the first pass. It is at k_begin if
// there is one pass. With copies, windows are found from all of K, as gemm_halves.wgsl finds them.
fn find_windows(batch: u32, m0: u32, n0: u32, k_begin: u32, k_end: u32, t: u32) -> Step {
  let along = (p.k + block_k - 1u) / block_k;
  let a_batch = select(0u, batch, p.a_batch != 0u);
  let b_batch = select(0u, batch, p.b_batch != 0u);
  let a_batches = select(1u, p.batch, p.a_batch != 0u);
  let a_ranges = (a_batch * p.tiles_m + m0 / 128u) * along;
  let b_ranges = (a_batches * p.tiles_m + b_batch * p.tiles_n + n0 / 128u) * along;
  if (t < 2u) {
    atomicStore(&largest[t], 0u);
    atomicStore(&smallest[t], 0x7fffu);
    atomicStore(&special[t], 0u);
  }
  workgroupBarrier();
  @if(has_a_halves) let blocks = vec2<u32>(0u, along);
  @else let blocks = vec2<u32>(k_begin / block_k, (k_end + block_k - 1u) / block_k);
  for (var block = blocks.x + t; block < blocks.y; block += 128u) {
    add_range(0u, load_ranges(a_ranges + block));
    add_range(1u, load_ranges(b_ranges + block));
  }
  workgroupBarrier();
  if (t == 0u) {
    let a = range_of(0u);
    let b = range_of(1u);
    windows = Windows(k_begin, k_end, a_ranges, b_ranges, top_of(a), top_of(b), last_window_of(a), last_window_of(b),
                      (a | b) >> 31u, factor_of(a, top_of(a)), factor_of(b, top_of(b)));
  }
  let all = workgroupUniformLoad(&windows);
  let level = min(all.a_last + all.b_last, deepest);
  let is_only_pass = all.a_factor != 0.0 && all.b_factor != 0.0;
  let first = Step(k_begin, all.special * 2u, level, max(level - all.b_last, 0), all.a_factor, all.b_factor,
                   is_only_pass);
  if (is_only_pass) {
    return first;
  }
  return find_step(first);
}

// The first step at or behind `start`, in its pass or a later one, that has something to multiply. At the end of the
// last pass its k is k_end.
fn find_step(start: Step) -> Step {
  let all = workgroupUniformLoad(&windows);
  var step = start;
  loop {
    if (step.k >= all.k_end) {
      if (step.special > 0u) {
        step.special--;
      } else if (step.a_window < min(all.a_last, step.level)) {
        step.a_window++;
      } else if (step.level > 0) {
        step.level--;
        step.a_window = max(step.level - all.b_last, 0);
      } else {
        step.k = all.k_end;
        return step;
      }
      step.k = all.k_begin;
    }
    let a = load_ranges(all.a_ranges + step.k / block_k);
    let b = load_ranges(all.b_ranges + step.k / block_k);
    let a_top = all.a_top - step.a_window * window;
    let b_top = all.b_top - (step.level - step.a_window) * window;
    if (step.special > 0u) {
      if ((a | b) >> 31u == 1u) {
        step.a_factor = 0.0;
        step.b_factor = 0.0;
        return step;
      }
    } else if (reaches(a, a_top) && reaches(b, b_top)) {
      step.a_factor = factor_of(a, a_top);
      step.b_factor = factor_of(b, b_top);
      return step;
    }
    step.k = (step.k / block_k + 1u) * block_k;
  }
  return step;
}

// Where the windows of a step end.
fn top_in_a(step: Step) -> i32 {
  return windows.a_top - step.a_window * window;
}

fn top_in_b(step: Step) -> i32 {
  return windows.b_top - (step.level - step.a_window) * window;
}

// ---- Elements. Three functions convert groups, from the fastest to the most general.

// Of a block with a factor.
fn scaled_pair(pair: u32, factor: f32) -> u32 {
  return pack2x16float(vec2<f32>(bitcast<f32>(pair << 16u), bitcast<f32>(pair & 0xffff0000u)) * factor);
}

fn scaled_group(group: vec4<u32>, factor: f32) -> vec4<u32> {
  return vec4<u32>(scaled_pair(group.x, factor), scaled_pair(group.y, factor), scaled_pair(group.z, factor),
                   scaled_pair(group.w, factor));
}

// Whether windowed_group() converts the groups: where no subnormal number lies in the window that ends at `top`.
fn is_windowed(step: Step, top: i32) -> bool {
  return step.special == 0u && top >= window;
}

// Keeps what lies in the window. Both numbers of a word are computed at once: a magnitude has 15 bits, so that the
// sums below stay in 16 bits, of which the highest says whether the magnitude reaches a bound. A float16 has three more
// bits of fraction than a bfloat16, and exponent 1 where the window starts.
fn windowed_group(group: vec4<u32>, top: i32) -> vec4<u32> {
  let start = vec4<u32>((0x8000u - (u32(top - window + 1) << 7u)) * 0x10001u);
  let end = vec4<u32>((0x8000u - (u32(top + 1) << 7u)) * 0x10001u);
  let magnitudes = group & vec4<u32>(0x7fff7fffu);
  let above_start = magnitudes + start;
  let inside = above_start & ~(magnitudes + end) & vec4<u32>(0x80008000u);
  let ones = inside >> vec4<u32>(15u);
  let halves = ((above_start & (inside - ones)) << vec4<u32>(3u)) + (ones << vec4<u32>(10u));
  return halves | (group & vec4<u32>(0x80008000u));
}

// The float16 bits of a bfloat16's, in the window that ends at `top`.
fn half_of(bits: u32, top: i32, special: u32) -> u32 {
  let magnitude = bits & 0x7fffu;
  let sign = bits & 0x8000u;
  if (special > 0u) {
    if (magnitude < 0x7f80u) {
      return select(sign | 0x3c00u, 0u, magnitude == 0u);
    }
    return select(select(sign | 0x7c00u, 0x7e00u, magnitude > 0x7f80u), 0u, special == 1u);
  }
  if (magnitude == 0u || magnitude >= 0x7f80u) {
    return 0u;
  }
  let below = top - exponent_of(magnitude);
  if (below < 0 || below >= window) {
    return 0u;
  }
  let missing = 7u - min(firstLeadingBit(magnitude), 7u); // of a subnormal number's fraction
  return sign | (u32(window - below) << 10u) | (((magnitude << missing) & 0x7fu) << 3u);
}

fn converted(group: vec4<u32>, top: i32, special: u32) -> vec4<u32> {
  var halves = vec4<u32>();
  for (var j = 0u; j < 4u; j++) {
    halves[j] = half_of(group[j] & 0xffffu, top, special) | (half_of(group[j] >> 16u, top, special) << 16u);
  }
  return halves;
}

fn converted_a(group: vec4<u32>, step: Step) -> vec4<u32> {
  let signs = select(0u, 0x80008000u, step.special == 1u);
  return converted(group ^ vec4<u32>(signs), top_in_a(step), step.special);
}

fn converted_b(group: vec4<u32>, step: Step) -> vec4<u32> {
  return converted(group, top_in_b(step), step.special);
}

// What sums of that level are multiplied with: the top of a window became 2^15.
fn unit_of(level: i32) -> vec2<f32> {
  return power_of_two(windows.a_top + windows.b_top - 2 * 142 - level * window);
}

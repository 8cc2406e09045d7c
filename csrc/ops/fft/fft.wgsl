// One pass of discrete Fourier transforms of complex sequences, forward. A workgroup holds some rows of `length`
// elements in workgroup memory and transforms them in place: it puts elements at digit-reversed positions, then runs
// the stages (decimation in time), one per factor of the length. An inverse transform conjugates input and output.
//
// A sequence that is longer than workgroup memory is treated as `outer` x `length` x `inner` elements, with one pass
// per factor. All passes but the last write an element back to its position, multiplied by its twiddle factor. The last
// pass writes each element to its position in the result.
//
// A length with a large prime factor becomes a convolution with a chirp (Bluestein's algorithm): the sequence is
// multiplied by the chirp and padded with zeros, transformed, multiplied by the filter spectrum (the transform of the
// chirp's conjugate), transformed back, and multiplied by the chirp.
//
// @operand y: out {f32, c64} // f32: the result is real
// @operand x: in {f32, c64}
// @operand roots: in {c64} // the `length` roots of unity
// @operand twiddles: in {c64} optional // for a pass that is not the last: small powers of a root, then large ones
// @operand chirp: in {c64} optional
// @operand filter_spectrum: in {c64} optional
// @const   capacity: u32 in {1024, 2048} // elements that a workgroup holds
// @const   max_rows: u32 in {128} // that a workgroup takes
// @const   hermitian: bool // x holds the first half of a sequence with conjugate symmetry
// @const   chirp_in: bool // multiplies by the chirp before the transform, and pads with zeros
// @const   chirp_out: bool // multiplies by the chirp after the inverse transform
// @const   convolves: bool // both transforms in one pass; else the filter is applied to what is stored
// @const   radix_3_or_5: bool // some stage has such a radix
// @const   radix_7_to_13: bool
// @require has_chirp == (chirp_in || chirp_out)
// @require !convolves || (has_filter_spectrum && chirp_in && chirp_out && !has_twiddles)

struct Params {
  rows: u32,           // of all sequences; each sequence has outer * inner rows
  length: u32,
  rows_per_group: u32, // a power of two
  num_stages: u32,
  inner: u32,
  outer: u32,
  points: u32,         // of the sequence; fewer than length * inner * outer if it is convolved
  stored: u32,         // positions below it are written
  store_step: u32,     // between neighbours of a row, in positions
  root_step: u32,      // factor of the exponent of twiddles: the pass splits parts of 1 / root_step of the sequence
  root_shift: u32,     // log2 of the number of small powers in twiddles
  first_sequence: u32, // the sequence of row 0
  x_stride: u32,       // between positions
  x_sequence: u32,     // between sequences in scratch memory; 0 in a tensor, where `dims` has the strides
  y_stride: u32,
  y_sequence: u32,
  load_across: u32,    // neighbouring invocations take neighbouring rows (else positions)
  store_across: u32,
  load_sign: f32,      // -1 conjugates
  scale: f32,
  store_sign: f32,
  num_dims: u32,
  num_digits: u32,
  transforms: u32,     // 2 if it convolves
  radices: vec4<u32>,  // of the stages, four bits each
  digits: array<vec4<u32>, 8>, // outer's factors, last first: size, weight in the result's position
  dims: array<vec4<u32>, 16>,  // of the sequences, innermost first: size, stride in x, stride in y
}

@if(x_is_complex)
fn element(i: u32) -> vec2<f32> { return load_x(i); }
@else
fn element(i: u32) -> vec2<f32> { return vec2<f32>(load_x(i), 0.0); }

@if(y_is_complex)
fn store_result(i: u32, v: vec2<f32>) { store_y(i, v); }
@else
fn store_result(i: u32, v: vec2<f32>) { store_y(i, v.x); }

const power_of_2 = !(radix_3_or_5 || radix_7_to_13); // the length

struct Row {
  x: u32,
  y: u32,
  load_first: u32, // positions
  store_first: u32,
  twiddle: u32, // exponent of the twiddle factors, per position in the row
}

var<workgroup> work: array<vec2<f32>, capacity + capacity / 16u>;
var<workgroup> rows: array<Row, max_rows>;

// The index in `work` of the workgroup's element i. An unused element after every 16 spreads accesses at distances of a
// power of two over the memory banks.
fn slot(i: u32) -> u32 {
  return i + (i >> 4u);
}

// a / b, for a factor b of the length.
fn quotient(a: u32, b: u32) -> u32 {
  if (power_of_2) {
    return a >> firstTrailingBit(b);
  }
  return a / b;
}

fn remainder(a: u32, b: u32) -> u32 {
  if (power_of_2) {
    return a & (b - 1u);
  }
  return a % b;
}

fn radix_of(stage: u32) -> u32 {
  return (p.radices[stage >> 3u] >> ((stage & 7u) << 2u)) & 15u;
}

fn row_at(index: u32) -> Row {
  let within = index % (p.outer * p.inner);
  let sequence = index / (p.outer * p.inner);
  let upper = within / p.inner;
  var row = Row(p.x_at + sequence * p.x_sequence, p.y_at + sequence * p.y_sequence,
                upper * p.length * p.inner + within % p.inner, 0u, within % p.inner);
  var rest = p.first_sequence + sequence;
  for (var d = 0u; d < p.num_dims; d++) {
    let at = rest % p.dims[d].x;
    rest /= p.dims[d].x;
    row.x += at * p.dims[d].y;
    row.y += at * p.dims[d].z;
  }
  @if(has_twiddles) {
    row.store_first = row.load_first;
  } @else {
    rest = upper;
    for (var d = 0u; d < p.num_digits; d++) {
      row.store_first += rest % p.digits[d].x * p.digits[d].y;
      rest /= p.digits[d].x;
    }
  }
  return row;
}

fn source(row: Row, position: u32) -> vec2<f32> {
  if (chirp_in && position >= p.points) {
    return vec2<f32>();
  }
  var v = vec2<f32>();
  if (hermitian) {
    let mirrored = position > p.points / 2u;
    v = element(row.x + select(position, p.points - position, mirrored) * p.x_stride);
    v.y = select(v.y, -v.y, mirrored);
    if (position == 0u || 2u * position == p.points) {
      v.y = 0.0;
    }
  } else {
    v = element(row.x + position * p.x_stride);
  }
  v.y *= p.load_sign;
  @if(chirp_in) v = mul_c(v, load_chirp(p.chirp_at + position));
  return v;
}

fn sink(row: Row, k: u32, value: vec2<f32>) {
  let position = row.store_first + k * p.store_step;
  if (position >= p.stored) {
    return;
  }
  var v = value;
  @if(has_twiddles) {
    let exponent = row.twiddle * k * p.root_step;
    let small = exponent & ((1u << p.root_shift) - 1u);
    let large = (1u << p.root_shift) + (exponent >> p.root_shift);
    v = mul_c(v, mul_c(load_twiddles(p.twiddles_at + small), load_twiddles(p.twiddles_at + large)));
  }
  // The next transform is an inverse one, computed as a forward transform of the conjugate.
  @if(has_filter_spectrum && !convolves)
  v = conj_c(mul_c(v, load_filter_spectrum(p.filter_spectrum_at + position)));
  @if(chirp_out) v = mul_c(conj_c(v), load_chirp(p.chirp_at + position));
  store_result(row.y + position * p.y_stride, vec2<f32>(v.x * p.scale, v.y * p.scale * p.store_sign));
}

// The digit-reversed position of element j of a row.
fn place_of(j: u32) -> u32 {
  var rest = j;
  var block = p.length;
  var place = 0u;
  for (var stage = p.num_stages; stage > 0u; stage--) {
    let radix = radix_of(stage - 1u);
    block = quotient(block, radix);
    place += remainder(rest, radix) * block;
    rest = quotient(rest, radix);
  }
  return place;
}

struct Four {
  a: vec2<f32>,
  b: vec2<f32>,
  c: vec2<f32>,
  d: vec2<f32>,
}

fn transform4(a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32>) -> Four {
  let even = a + c;
  let odd = b + d;
  let even_difference = a - c;
  let odd_difference = div_i_c(b - d);
  return Four(even + odd, even_difference + odd_difference, even - odd, even_difference - odd_difference);
}

// Element q of a butterfly, times its twiddle factor.
fn twiddled(base: u32, span: u32, step: u32, q: u32) -> vec2<f32> {
  return mul_c(work[slot(base + q * span)], load_roots(p.roots_at + q * step));
}

fn butterfly2(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = twiddled(base, span, step, 1u);
  work[slot(base)] = a + b;
  work[slot(base + span)] = a - b;
}

fn butterfly3(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = twiddled(base, span, step, 1u);
  let c = twiddled(base, span, step, 2u);
  let sum = b + c;
  let mean = a - 0.5 * sum;
  let side = 0.866025404 * div_i_c(b - c);
  work[slot(base)] = a + sum;
  work[slot(base + span)] = mean + side;
  work[slot(base + 2u * span)] = mean - side;
}

fn butterfly4(base: u32, span: u32, step: u32) {
  let y = transform4(work[slot(base)], twiddled(base, span, step, 1u), twiddled(base, span, step, 2u),
                     twiddled(base, span, step, 3u));
  work[slot(base)] = y.a;
  work[slot(base + span)] = y.b;
  work[slot(base + 2u * span)] = y.c;
  work[slot(base + 3u * span)] = y.d;
}

fn butterfly5(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = twiddled(base, span, step, 1u);
  let c = twiddled(base, span, step, 2u);
  let d = twiddled(base, span, step, 3u);
  let e = twiddled(base, span, step, 4u);
  let outer_sum = b + e;
  let inner_sum = c + d;
  let outer_difference = div_i_c(b - e);
  let inner_difference = div_i_c(c - d);
  let mean1 = a + 0.309016994 * outer_sum - 0.809016994 * inner_sum;
  let mean2 = a - 0.809016994 * outer_sum + 0.309016994 * inner_sum;
  let side1 = 0.951056516 * outer_difference + 0.587785252 * inner_difference;
  let side2 = 0.587785252 * outer_difference - 0.951056516 * inner_difference;
  work[slot(base)] = a + outer_sum + inner_sum;
  work[slot(base + span)] = mean1 + side1;
  work[slot(base + 2u * span)] = mean2 + side2;
  work[slot(base + 3u * span)] = mean2 - side2;
  work[slot(base + 4u * span)] = mean1 - side1;
}

fn butterfly8(base: u32, span: u32, step: u32) {
  let even = transform4(work[slot(base)], twiddled(base, span, step, 2u), twiddled(base, span, step, 4u),
                        twiddled(base, span, step, 6u));
  let odd = transform4(twiddled(base, span, step, 1u), twiddled(base, span, step, 3u),
                       twiddled(base, span, step, 5u), twiddled(base, span, step, 7u));
  let b = 0.707106781 * vec2<f32>(odd.b.x + odd.b.y, odd.b.y - odd.b.x);
  let c = div_i_c(odd.c);
  let d = 0.707106781 * vec2<f32>(odd.d.y - odd.d.x, -odd.d.x - odd.d.y);
  work[slot(base)] = even.a + odd.a;
  work[slot(base + span)] = even.b + b;
  work[slot(base + 2u * span)] = even.c + c;
  work[slot(base + 3u * span)] = even.d + d;
  work[slot(base + 4u * span)] = even.a - odd.a;
  work[slot(base + 5u * span)] = even.b - b;
  work[slot(base + 6u * span)] = even.c - c;
  work[slot(base + 7u * span)] = even.d - d;
}

// Odd prime radices up to 13, as sums by the definition. The terms q and radix - q share their factors.
fn butterfly_odd(base: u32, span: u32, step: u32, radix: u32) {
  let half = radix / 2u;
  let first = work[slot(base)];
  var sums = array<vec2<f32>, 6>();
  var differences = array<vec2<f32>, 6>();
  var total = first;
  for (var q = 1u; q <= half; q++) {
    let a = twiddled(base, span, step, q);
    let b = twiddled(base, span, step, radix - q);
    sums[q - 1u] = a + b;
    differences[q - 1u] = a - b;
    total += a + b;
  }
  work[slot(base)] = total;
  let root = p.length / radix;
  for (var k = 1u; k <= half; k++) {
    var mean = first;
    var side = vec2<f32>();
    for (var q = 1u; q <= half; q++) {
      let factor = load_roots(p.roots_at + k * q % radix * root);
      mean += factor.x * sums[q - 1u];
      side += factor.y * differences[q - 1u];
    }
    work[slot(base + k * span)] = mean + mul_i_c(side);
    work[slot(base + (radix - k) * span)] = mean - mul_i_c(side);
  }
}

// Transforms the rows. Starts and ends with a barrier.
fn transform(local: u32) {
  var span = 1u;
  for (var stage = 0u; stage < p.num_stages; stage++) {
    workgroupBarrier();
    let radix = radix_of(stage);
    let butterflies = quotient(p.length, radix);
    for (var t = local; t < p.rows_per_group * butterflies; t += 256u) {
      let row = quotient(t, butterflies);
      let within = remainder(t, butterflies);
      let block = quotient(within, span);
      let offset = remainder(within, span);
      let base = row * p.length + block * span * radix + offset;
      let step = offset * quotient(butterflies, span);
      switch (radix) {
        case 2u: { butterfly2(base, span, step); }
        case 4u: { butterfly4(base, span, step); }
        case 8u: { butterfly8(base, span, step); }
        default: {
          if (radix_3_or_5 && radix == 3u) {
            butterfly3(base, span, step);
          } else if (radix_3_or_5 && radix == 5u) {
            butterfly5(base, span, step);
          } else if (radix_7_to_13) {
            butterfly_odd(base, span, step, radix);
          }
        }
      }
    }
    span *= radix;
  }
  workgroupBarrier();
}

// Multiplies by the filter spectrum and puts the elements in digit-reversed order for the second transform. That is
// an inverse transform, computed as a forward transform of the conjugate.
@if(convolves)
fn apply_filter(local: u32, elements: u32) {
  var held = array<vec2<f32>, capacity / 256u>();
  for (var k = 0u; k < capacity / 256u; k++) {
    let e = k * 256u + local;
    if (e < elements) {
      let factor = load_filter_spectrum(p.filter_spectrum_at + remainder(e, p.length));
      held[k] = conj_c(mul_c(work[slot(e)], factor));
    }
  }
  workgroupBarrier();
  for (var k = 0u; k < capacity / 256u; k++) {
    let e = k * 256u + local;
    if (e < elements) {
      let position = remainder(e, p.length);
      work[slot(e - position + place_of(position))] = held[k];
    }
  }
}

// Row and position of the e-th element of the workgroup.
fn split(e: u32, across: u32) -> vec2<u32> {
  if (across != 0u) {
    return vec2<u32>(e & (p.rows_per_group - 1u), e >> firstTrailingBit(p.rows_per_group));
  }
  return vec2<u32>(quotient(e, p.length), remainder(e, p.length));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let first = (group.y * groups.x + group.x) * p.rows_per_group;
  let elements = p.rows_per_group * p.length;
  if (local < p.rows_per_group) {
    rows[local] = row_at(min(first + local, p.rows - 1u));
  }
  workgroupBarrier();
  for (var e = local; e < elements; e += 256u) {
    let at = split(e, p.load_across);
    var v = vec2<f32>();
    if (first + at.x < p.rows) {
      let row = rows[at.x];
      v = source(row, row.load_first + at.y * p.inner);
    }
    work[slot(at.x * p.length + place_of(at.y))] = v;
  }
  // A convolution transforms twice. The bound of the loop is a parameter, so that no compiler unrolls it: the body
  // takes long to compile even once.
  for (var n = 0u; n < p.transforms; n++) {
    transform(local);
    @if(convolves) {
      if (n == 0u) {
        apply_filter(local, elements);
      }
    }
  }
  for (var e = local; e < elements; e += 256u) {
    let at = split(e, p.store_across);
    if (first + at.x < p.rows) {
      sink(rows[at.x], at.y, work[slot(at.x * p.length + at.y)]);
    }
  }
}

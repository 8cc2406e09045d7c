// One pass of discrete Fourier transforms of complex sequences, forward. A workgroup holds some rows of `length`
// elements in workgroup memory and transforms them in place: elements are put at digit-reversed places, then follow the
// stages (decimation in time), one per factor of the length. An inverse transform conjugates on the way in and out.
//
// A sequence that is longer than workgroup memory is taken as `outer` x `length` x `inner` elements, with a pass for
// each factor: all but the last leave an element where it was and multiply it by its root of unity, the last writes it
// where it belongs. A length with a large prime factor becomes a convolution with a chirp (Bluestein).

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> b1: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> b2: array<vec2<f32>>;
fn store_y(i: u32, v: vec2<f32>) { b0[i] = v; }
fn load_x(i: u32) -> vec2<f32> { return b1[i]; }
fn load_w(i: u32) -> vec2<f32> { return b2[i]; } // the `length` roots of unity
// @end

struct Params {
  rows: u32,           // of all sequences: outer * inner of each
  length: u32,
  rows_per_group: u32, // a power of two
  num_stages: u32,
  radices: vec2<u32>,  // of the stages, four bits each
  inner: u32,
  outer: u32,
  points: u32,         // of the sequence; fewer than length * inner * outer if it is convolved
  stored: u32,         // positions below it are written
  store_step: u32,     // between neighbours of a row, in positions
  root_step: u32,      // 1 / root_step of the sequence is taken apart by this pass
  root_shift: u32,     // log2 of how many small powers the table of roots has
  first_sequence: u32, // the sequence of row 0
  x_at: u32,
  x_stride: u32,       // between positions
  x_sequence: u32,     // between sequences that lie one behind the other
  y_at: u32,
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
  digits: array<vec4<u32>, 8>, // outer's factors, last first: size, weight in the result's position
  dims: array<vec4<u32>, 16>,  // of the sequences, last first: size, stride in x, stride in y
}
@group(0) @binding(31) var<uniform> p: Params;

// @hook variant
const hermitian = false; // x holds the first half of a symmetric sequence
const chirp_in = false;  // multiplies by the chirp and pads with zeros
const convolves = false; // applies the response and transforms back, in one pass
const turns = false;     // multiplies by roots of unity: a pass that is not the last
const responds = false;  // applies the response
const chirp_out = false; // ends the way back
const has_3_or_5 = true; // among the radices
const has_larger = true;
// @end

// @hook element
fn element(i: u32) -> vec2<f32> { return load_x(i); }
fn put(i: u32, v: vec2<f32>) { store_y(i, v); }
// @end

// @hook tables
fn chirp(i: u32) -> vec2<f32> { return vec2<f32>(); }
fn response(i: u32) -> vec2<f32> { return vec2<f32>(); }
fn power(i: u32) -> vec2<f32> { return vec2<f32>(); }
// @end

// @hook capacity
const capacity = 1024u;
// @end

const max_rows = 128u;
const power_of_2 = !(has_3_or_5 || has_larger); // the length

struct Row {
  x: u32,
  y: u32,
  load_first: u32, // positions
  store_first: u32,
  turn: u32,
}

var<workgroup> work: array<vec2<f32>, capacity + capacity / 16u>;
var<workgroup> rows: array<Row, max_rows>;

// Where element i of the workgroup lies in `work`. A gap after every 16 keeps the steps of a stage, powers of two, off
// one and the same memory bank.
fn slot(i: u32) -> u32 {
  return i + (i >> 4u);
}

// By a factor of the length.
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
  if (turns) {
    row.store_first = row.load_first;
  } else {
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
  if (chirp_in) {
    v = mul_c(v, chirp(position));
  }
  return v;
}

fn sink(row: Row, k: u32, value: vec2<f32>) {
  let position = row.store_first + k * p.store_step;
  if (position >= p.stored) {
    return;
  }
  var v = value;
  if (turns) {
    let exponent = row.turn * k * p.root_step;
    let small = exponent & ((1u << p.root_shift) - 1u);
    v = mul_c(v, mul_c(power(small), power((1u << p.root_shift) + (exponent >> p.root_shift))));
  }
  if (responds) {
    v = conj_c(mul_c(v, response(position)));
  }
  if (chirp_out) {
    v = mul_c(conj_c(v), chirp(position));
  }
  put(row.y + position * p.y_stride, vec2<f32>(v.x * p.scale, v.y * p.scale * p.store_sign));
}

// Where the first stage wants element j of a row.
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

// Element q of a butterfly, turned.
fn turned(base: u32, span: u32, step: u32, q: u32) -> vec2<f32> {
  return mul_c(work[slot(base + q * span)], load_w(q * step));
}

fn butterfly2(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = turned(base, span, step, 1u);
  work[slot(base)] = a + b;
  work[slot(base + span)] = a - b;
}

fn butterfly3(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = turned(base, span, step, 1u);
  let c = turned(base, span, step, 2u);
  let sum = b + c;
  let mean = a - 0.5 * sum;
  let side = 0.866025404 * div_i_c(b - c);
  work[slot(base)] = a + sum;
  work[slot(base + span)] = mean + side;
  work[slot(base + 2u * span)] = mean - side;
}

fn butterfly4(base: u32, span: u32, step: u32) {
  let y = transform4(work[slot(base)], turned(base, span, step, 1u), turned(base, span, step, 2u),
                     turned(base, span, step, 3u));
  work[slot(base)] = y.a;
  work[slot(base + span)] = y.b;
  work[slot(base + 2u * span)] = y.c;
  work[slot(base + 3u * span)] = y.d;
}

fn butterfly5(base: u32, span: u32, step: u32) {
  let a = work[slot(base)];
  let b = turned(base, span, step, 1u);
  let c = turned(base, span, step, 2u);
  let d = turned(base, span, step, 3u);
  let e = turned(base, span, step, 4u);
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
  let even = transform4(work[slot(base)], turned(base, span, step, 2u), turned(base, span, step, 4u),
                        turned(base, span, step, 6u));
  let odd = transform4(turned(base, span, step, 1u), turned(base, span, step, 3u),
                       turned(base, span, step, 5u), turned(base, span, step, 7u));
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

// Odd prime radices up to 13, by the definition; the terms q and radix - q share their factors.
fn butterfly_odd(base: u32, span: u32, step: u32, radix: u32) {
  let half = radix / 2u;
  let first = work[slot(base)];
  var sums = array<vec2<f32>, 6>();
  var differences = array<vec2<f32>, 6>();
  var total = first;
  for (var q = 1u; q <= half; q++) {
    let a = turned(base, span, step, q);
    let b = turned(base, span, step, radix - q);
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
      let factor = load_w(k * q % radix * root);
      mean += factor.x * sums[q - 1u];
      side += factor.y * differences[q - 1u];
    }
    work[slot(base + k * span)] = mean + mul_i_c(side);
    work[slot(base + (radix - k) * span)] = mean - mul_i_c(side);
  }
}

// Transforms the rows. The barriers around it are its own.
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
          if (has_3_or_5 && radix == 3u) {
            butterfly3(base, span, step);
          } else if (has_3_or_5 && radix == 5u) {
            butterfly5(base, span, step);
          } else if (has_larger) {
            butterfly_odd(base, span, step, radix);
          }
        }
      }
    }
    span *= radix;
  }
  workgroupBarrier();
}

// Multiplies by the response and puts elements where a transform wants them. The conjugate makes it the way back.
fn respond(local: u32, elements: u32) {
  var held = array<vec2<f32>, capacity / 256u>();
  for (var k = 0u; k < capacity / 256u; k++) {
    let e = k * 256u + local;
    if (e < elements) {
      held[k] = conj_c(mul_c(work[slot(e)], response(remainder(e, p.length))));
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
  // A convolution transforms there and back: a loop that no compiler unrolls, it takes long enough as it is.
  for (var turn = 0u; turn < p.transforms; turn++) {
    transform(local);
    if (convolves && turn == 0u) {
      respond(local, elements);
    }
  }
  for (var e = local; e < elements; e += 256u) {
    let at = split(e, p.store_across);
    if (first + at.x < p.rows) {
      sink(rows[at.x], at.y, work[slot(at.x * p.length + at.y)]);
    }
  }
}

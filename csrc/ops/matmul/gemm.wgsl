// C = alpha * A @ B + beta * D, batched, for any strides and element types. A workgroup of
// kTile * kTile invocations computes a tile of 4 kTile rows and columns, kTile steps of K at a time;
// an invocation computes 4 x 4 elements and loads four elements of A and of B per step.
// Convolutions are the same product: their hooks compute where elements of A, B and C lie.

@group(0) @binding(31) var<uniform> p: GemmParams;

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
alias a_t = f32;
alias b_t = f32;
alias c_t = f32;
alias d_t = f32;
fn store_c(i: u32, v: c_t) { b0[i] = bitcast<u32>(v); }
fn load_a(i: u32) -> a_t { return bitcast<f32>(b1[i]); }
fn load_b(i: u32) -> b_t { return bitcast<f32>(b2[i]); }
fn load_d(i: u32) -> d_t { return bitcast<f32>(b3[i]); }
// @end

// Sizes. Column j of group g is column g * kColumnGroup + j * kColumnStep of the tile.
// @hook TILE
const kTile = 16u;
const kPitch = 17u;
const kColumnGroup = 1u;
const kColumnStep = 16u;
// @end

// Four elements as one value, and arithmetic of the accumulator's type.
// @hook KIND
alias acc_t = f32;
alias row_t = vec4<f32>;
fn row_of(x0: f32, x1: f32, x2: f32, x3: f32) -> row_t { return row_t(x0, x1, x2, x3); }
fn row_get(row: row_t, i: u32) -> acc_t { return row[i]; }
fn row_mul_add(a: acc_t, b: row_t, acc: row_t) -> row_t { return fma(row_t(a), b, acc); }
fn acc_add(a: acc_t, b: acc_t) -> acc_t { return a + b; }
fn acc_mul(a: acc_t, b: acc_t) -> acc_t { return a * b; }
fn acc_scalar(words: vec2<u32>) -> acc_t { return bitcast<f32>(words.x); }
// @end

// Where A's column k lies, relative to its row.
// @hook A_COLUMN
fn a_column(k: u32) -> u32 { return k * p.a_column; }
// @end

// Element (k, n) of B. What depends on k or n alone is computed once for four elements.
// @hook B_ELEMENT
alias b_row_t = u32;
alias b_column_t = u32;
fn b_row(k: u32) -> b_row_t { return k * p.b_row; }
fn b_column(batch: u32, n: u32) -> b_column_t {
  return p.b_offset + batch * p.b_batch + n * p.b_column;
}
fn b_element(row: b_row_t, column: b_column_t) -> b_t { return load_b(row + column); }
// Whether B has such an element. A missing element is loaded as zero and must add nothing to the sum.
fn b_exists(row: b_row_t, column: b_column_t) -> bool { return true; }
// @end

// For elements of B that may be missing, in types with NaN and infinity. A missing element is zero, but zero times NaN
// or infinity in A is NaN, so these functions record whether A has such values.
// @hook MASK
fn forget_not_finite() {}
fn note_not_finite(a: row_t) {}
fn found_not_finite() -> bool { return false; } // in A, in this or an earlier step
fn row_where(condition: vec4<bool>, yes: row_t, no: row_t) -> row_t { return yes; }
// @end

// Where C's column n lies, relative to its row.
// @hook C_COLUMN
fn c_column(n: u32) -> u32 { return n * p.c_column; }
// @end

// @hook EPILOGUE
fn epilogue(acc: acc_t, batch: u32, m: u32, n: u32) -> acc_t {
  let d = load_d(p.d_offset + batch * p.d_batch + m * p.d_row + n * p.d_column);
  return acc_add(acc_mul(acc_scalar(p.alpha), acc), acc_mul(acc_scalar(p.beta), d));
}
// @end

// @hook STORE_ROW
fn store_element(c_batch: u32, d_batch: u32, m: u32, n: u32, value: acc_t) {
  if (n < p.n) {
    store_c(p.c_offset + c_batch * p.c_batch + m * p.c_row + c_column(n),
            epilogue(value, d_batch, m, n));
  }
}

fn store_row(c_batch: u32, d_batch: u32, m: u32, n: u32, row: row_t) {
  if (m < p.m) {
    store_element(c_batch, d_batch, m, n, row_get(row, 0u));
    store_element(c_batch, d_batch, m, n + kColumnStep, row_get(row, 1u));
    store_element(c_batch, d_batch, m, n + 2u * kColumnStep, row_get(row, 2u));
    store_element(c_batch, d_batch, m, n + 3u * kColumnStep, row_get(row, 3u));
  }
}
// @end

var<workgroup> tile_a: array<row_t, kTile * kPitch>;
var<workgroup> tile_b: array<row_t, kTile * kPitch>;

@compute @workgroup_size(kTile * kTile)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  var id = wid.y * groups.x + wid.x;
  let n0 = id % p.tiles_n * (4u * kTile);
  id = id / p.tiles_n;
  let m0 = id % p.tiles_m * (4u * kTile);
  id = id / p.tiles_m; // piece * batches + batch
  let batch = id % p.batch;
  let piece = id / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let k_begin = piece * p.k_piece;
  let k_end = min(k_begin + p.k_piece, p.k);

  // Rows and columns beyond the edge repeat the last one: they are read, but never stored.
  let fast = t % kTile;
  let slow = t / kTile;
  let a_k = select(slow, fast, p.a_along_k == 1u);
  let a_m = select(fast, slow, p.a_along_k == 1u);
  let a_base = p.a_offset + batch * p.a_batch;
  let a_row = a_base + min(vec4<u32>(m0 + a_m) + vec4<u32>(0u, kTile, 2u * kTile, 3u * kTile),
                           vec4<u32>(p.m - 1u)) * p.a_row;
  let b_k = select(slow, fast, p.b_along_k == 1u);
  let b_n = select(fast, slow, p.b_along_k == 1u);
  let columns = min(vec4<u32>(n0 + b_n * kColumnGroup) +
                    vec4<u32>(0u, kColumnStep, 2u * kColumnStep, 3u * kColumnStep),
                    vec4<u32>(p.n - 1u));
  let b_0 = b_column(batch, columns.x);
  let b_1 = b_column(batch, columns.y);
  let b_2 = b_column(batch, columns.z);
  let b_3 = b_column(batch, columns.w);

  let row = t / kTile;
  let column = t % kTile;
  if (t == 0u) {
    forget_not_finite();
  }
  var acc0 = row_t();
  var acc1 = row_t();
  var acc2 = row_t();
  var acc3 = row_t();
  for (var k0 = k_begin; k0 < k_end; k0 += kTile) {
    var a = row_t();
    if (k0 + a_k < k_end) {
      let i = a_row + a_column(k0 + a_k);
      a = row_of(load_a(i.x), load_a(i.y), load_a(i.z), load_a(i.w));
    }
    var b = row_t();
    if (k0 + b_k < k_end) {
      let r = b_row(k0 + b_k);
      b = row_of(b_element(r, b_0), b_element(r, b_1), b_element(r, b_2), b_element(r, b_3));
    }
    workgroupBarrier();
    tile_a[a_k * kPitch + a_m] = a;
    tile_b[b_k * kPitch + b_n] = b;
    note_not_finite(a);
    workgroupBarrier();
    if (found_not_finite()) {
      // This is rare, so the columns are computed again here instead of being kept.
      let own = min(vec4<u32>(n0 + column * kColumnGroup) +
                    vec4<u32>(0u, kColumnStep, 2u * kColumnStep, 3u * kColumnStep),
                    vec4<u32>(p.n - 1u));
      let own_0 = b_column(batch, own.x);
      let own_1 = b_column(batch, own.y);
      let own_2 = b_column(batch, own.z);
      let own_3 = b_column(batch, own.w);
      for (var k = 0u; k < kTile; k++) {
        let x = tile_a[k * kPitch + row];
        let y = tile_b[k * kPitch + column];
        let r = b_row(k0 + k);
        let exists = vec4<bool>(b_exists(r, own_0), b_exists(r, own_1), b_exists(r, own_2),
                                b_exists(r, own_3));
        acc0 = row_where(exists, row_mul_add(row_get(x, 0u), y, acc0), acc0);
        acc1 = row_where(exists, row_mul_add(row_get(x, 1u), y, acc1), acc1);
        acc2 = row_where(exists, row_mul_add(row_get(x, 2u), y, acc2), acc2);
        acc3 = row_where(exists, row_mul_add(row_get(x, 3u), y, acc3), acc3);
      }
    } else {
      for (var k = 0u; k < kTile; k++) {
        let x = tile_a[k * kPitch + row];
        let y = tile_b[k * kPitch + column];
        acc0 = row_mul_add(row_get(x, 0u), y, acc0);
        acc1 = row_mul_add(row_get(x, 1u), y, acc1);
        acc2 = row_mul_add(row_get(x, 2u), y, acc2);
        acc3 = row_mul_add(row_get(x, 3u), y, acc3);
      }
    }
  }

  let n = n0 + column * kColumnGroup;
  store_row(id, batch, m0 + row, n, acc0);
  store_row(id, batch, m0 + row + kTile, n, acc1);
  store_row(id, batch, m0 + row + 2u * kTile, n, acc2);
  store_row(id, batch, m0 + row + 3u * kTile, n, acc3);
}

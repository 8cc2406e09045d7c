// C = alpha * A @ B + beta * D, batched, for any strides and element types. A workgroup of `tile` * `tile` invocations
// computes a tile of 4 `tile` rows and columns, `tile` steps of K at a time; an invocation computes 4 x 4 elements and
// loads four elements of A and of B per step.
//
// @operand c: words number akin a
// @operand a: in number
// @operand b: in like a
// @operand d: in like a optional
// @const   tile: u32 in {8, 16}

import package::matmul::product::{Params, acc_t, epilogue, epilogue4, column_of_a, row_of_b, column_of_b, b_element, b_exists, column_of_c};
import package::matmul::product::{forget_not_finite, note_not_finite, found_not_finite, row_where};

// Column j of group g is column g * column_group + j * column_step of the tile. Four neighbours that fill whole words
// are stored together.
@if(owns_c) const column_group = 4u;
@else const column_group = 1u;

@if(owns_c) const column_step = 1u;
@else const column_step = tile;

// Rows of 16-byte values end in one value of padding, against bank conflicts of accesses along K. With 32-byte values
// the padding would exceed 16 KiB of workgroup memory.
@if(a_is_long || a_is_complex) const pitch = tile;
@else const pitch = tile + 1u;

// Four accumulators as one value. Complex accumulators have real parts in column 0, imaginary in column 1.
@if(a_is_int) alias row_t = vec4<i32>;
@elif(a_is_long) alias row_t = array<vec2<u32>, 4>;
@elif(a_is_complex) alias row_t = mat2x4<f32>;
@else alias row_t = vec4<f32>;

@if(a_is_complex)
fn row_of(x0: acc_t, x1: acc_t, x2: acc_t, x3: acc_t) -> row_t {
  return row_t(vec4<f32>(x0.x, x1.x, x2.x, x3.x), vec4<f32>(x0.y, x1.y, x2.y, x3.y));
}
@else
fn row_of(x0: acc_t, x1: acc_t, x2: acc_t, x3: acc_t) -> row_t {
  return row_t(x0, x1, x2, x3);
}

fn row_get(row: row_t, i: u32) -> acc_t {
  @if(a_is_long) {
    var copy = row;
    return copy[i];
  }
  @elif(a_is_complex) return acc_t(row[0][i], row[1][i]);
  @else return row[i];
}

fn row_mul_add(a: acc_t, b: row_t, acc: row_t) -> row_t {
  @if(a_is_int) return row_t(a) * b + acc;
  @elif(a_is_long) {
    return row_t(add_l(acc[0], mul_l(a, b[0])), add_l(acc[1], mul_l(a, b[1])),
                 add_l(acc[2], mul_l(a, b[2])), add_l(acc[3], mul_l(a, b[3])));
  }
  @elif(a_is_complex) {
    return row_t(fma(vec4<f32>(a.x), b[0], fma(vec4<f32>(-a.y), b[1], acc[0])),
                 fma(vec4<f32>(a.x), b[1], fma(vec4<f32>(a.y), b[0], acc[1])));
  }
  @else return fma(row_t(a), b, acc);
}

fn c_element(c_batch: u32, m: u32, n: u32) -> u32 {
  return p.c_at + c_batch * p.c_batch + m * p.c_row + column_of_c(n);
}

@if(owns_c)
fn store_row(c_batch: u32, d_batch: u32, m: u32, n: u32, row: row_t) {
  if (m < p.m && n < p.n) {
    let sums = array<acc_t, 4>(row_get(row, 0u), row_get(row, 1u), row_get(row, 2u), row_get(row, 3u));
    let c = epilogue4(sums, d_batch, m, n, vec2<u32>(0u, 1u));
    store4_c(c_element(c_batch, m, n), c[0], c[1], c[2], c[3]);
  }
}
@else
fn store_row(c_batch: u32, d_batch: u32, m: u32, n: u32, row: row_t) {
  if (m < p.m) {
    store_element(c_batch, d_batch, m, n, row_get(row, 0u));
    store_element(c_batch, d_batch, m, n + column_step, row_get(row, 1u));
    store_element(c_batch, d_batch, m, n + 2u * column_step, row_get(row, 2u));
    store_element(c_batch, d_batch, m, n + 3u * column_step, row_get(row, 3u));
  }
}

@if(!owns_c)
fn store_element(c_batch: u32, d_batch: u32, m: u32, n: u32, value: acc_t) {
  if (n < p.n) {
    store_c(c_element(c_batch, m, n), epilogue(value, d_batch, m, n));
  }
}

var<workgroup> tile_a: array<row_t, tile * pitch>;

var<workgroup> tile_b: array<row_t, tile * pitch>;

// The tile of a workgroup. Workgroups are numbered by tiles of C first, then batches, then pieces of K.
fn tile_product(workgroup: u32, t: u32) {
  var id = workgroup;
  let n0 = id % p.tiles_n * (4u * tile);
  id = id / p.tiles_n;
  let m0 = id % p.tiles_m * (4u * tile);
  id = id / p.tiles_m; // piece * batches + batch
  let batch = id % p.batch;
  let piece = id / p.batch;
  if (piece >= p.splits) {
    return;
  }
  let k_begin = piece * p.k_piece;
  let k_end = min(k_begin + p.k_piece, p.k);

  // Rows and columns beyond the edge repeat the last one: they are read, but never stored.
  let fast = t % tile;
  let slow = t / tile;
  let a_k = select(slow, fast, p.a_along_k == 1u);
  let a_m = select(fast, slow, p.a_along_k == 1u);
  let a_base = p.a_at + batch * p.a_batch;
  let a_row = a_base + min(vec4<u32>(m0 + a_m) + vec4<u32>(0u, tile, 2u * tile, 3u * tile),
                           vec4<u32>(p.m - 1u)) * p.a_row;
  let b_k = select(slow, fast, p.b_along_k == 1u);
  let b_n = select(fast, slow, p.b_along_k == 1u);
  let columns = min(vec4<u32>(n0 + b_n * column_group) +
                    vec4<u32>(0u, column_step, 2u * column_step, 3u * column_step),
                    vec4<u32>(p.n - 1u));
  let b_0 = column_of_b(batch, columns.x);
  let b_1 = column_of_b(batch, columns.y);
  let b_2 = column_of_b(batch, columns.z);
  let b_3 = column_of_b(batch, columns.w);

  let row = t / tile;
  let column = t % tile;
  if (t == 0u) {
    forget_not_finite();
  }
  @repeat(i, 4) var acc$i = row_t();
  for (var k0 = k_begin; k0 < k_end; k0 += tile) {
    var a = row_t();
    if (k0 + a_k < k_end) {
      let i = a_row + column_of_a(k0 + a_k);
      a = row_of(load_a(i.x), load_a(i.y), load_a(i.z), load_a(i.w));
    }
    var b = row_t();
    if (k0 + b_k < k_end) {
      let r = row_of_b(k0 + b_k);
      b = row_of(b_element(r, b_0), b_element(r, b_1), b_element(r, b_2), b_element(r, b_3));
    }
    workgroupBarrier();
    tile_a[a_k * pitch + a_m] = a;
    tile_b[b_k * pitch + b_n] = b;
    note_not_finite(a);
    workgroupBarrier();
    if (found_not_finite()) {
      // This is rare, so the columns are computed again here instead of being kept.
      let own = min(vec4<u32>(n0 + column * column_group) +
                    vec4<u32>(0u, column_step, 2u * column_step, 3u * column_step),
                    vec4<u32>(p.n - 1u));
      let own_0 = column_of_b(batch, own.x);
      let own_1 = column_of_b(batch, own.y);
      let own_2 = column_of_b(batch, own.z);
      let own_3 = column_of_b(batch, own.w);
      for (var k = 0u; k < tile; k++) {
        let x = tile_a[k * pitch + row];
        let y = tile_b[k * pitch + column];
        let r = row_of_b(k0 + k);
        let exists = vec4<bool>(b_exists(r, own_0), b_exists(r, own_1), b_exists(r, own_2),
                                b_exists(r, own_3));
        @repeat(i, 4) acc$i = row_where(exists, row_mul_add(row_get(x, $iu), y, acc$i), acc$i);
      }
    } else {
      for (var k = 0u; k < tile; k++) {
        let x = tile_a[k * pitch + row];
        let y = tile_b[k * pitch + column];
        @repeat(i, 4) acc$i = row_mul_add(row_get(x, $iu), y, acc$i);
      }
    }
  }

  let n = n0 + column * column_group;
  store_row(id, batch, m0 + row, n, acc0);
  store_row(id, batch, m0 + row + tile, n, acc1);
  store_row(id, batch, m0 + row + 2u * tile, n, acc2);
  store_row(id, batch, m0 + row + 3u * tile, n, acc3);
}

@compute @workgroup_size(tile * tile)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  tile_product(wid.y * groups.x + wid.x, t);
}

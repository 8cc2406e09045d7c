// Copies of A and B as [batch][K][row or column], for gemm_matrix.wgsl and gemm_bf16.wgsl, which load matrices fastest where
// neighbours lie across K. bfloat16 becomes float16 times a power of two, one for each 128 rows of A, or columns of B: what
// lies in window 0 (gemm_windows.wgsl) is copied, and the rest is zero. A workgroup copies a block of 128 by 128 elements.
//
// @operand a_out: out {bits128} // its lines are padded with zeros to groups of eight
// @operand b_out: out {bits128} // likewise
// @operand ranges: in of u32 optional // of gemm_ranges.wgsl, of bfloat16; without, bits are copied as they are
// @grid groups p.a_blocks + p.b_blocks

import package::matmul::gemm_groups::{place_in_tile, line_of_group, load_group_a, load_group_b, base_of_a, base_of_b};
import package::matmul::gemm_blocks::{Params, rows, block_k, Block, block_of};
import package::matmul::gemm_windows::{window, add_range, range_of, factor_of, top_of};
import package::matmul::gemm_windows::{largest, smallest, special, scaled_group, windowed_group, converted};

struct Params {
  a_groups: u32, // of a row of the copies
  b_groups: u32,
}

// 8 x 8 elements, in groups.
alias Square = array<vec4<u32>, 8>;

// Two groups of the transpose: elements 2 * pair and 2 * pair + 1 of each group of x.
fn pair_of(x: Square, pair: u32) -> array<vec4<u32>, 2> {
  let low = vec4<u32>(x[0][pair], x[2][pair], x[4][pair], x[6][pair]);
  let high = vec4<u32>(x[1][pair], x[3][pair], x[5][pair], x[7][pair]);
  return array<vec4<u32>, 2>((low & vec4<u32>(0xffffu)) | (high << vec4<u32>(16u)),
                             (low >> vec4<u32>(16u)) | (high & vec4<u32>(0xffff0000u)));
}

fn transposed(x: Square) -> Square {
  let p0 = pair_of(x, 0u);
  let p1 = pair_of(x, 1u);
  let p2 = pair_of(x, 2u);
  let p3 = pair_of(x, 3u);
  return Square(p0[0], p0[1], p1[0], p1[1], p2[0], p2[1], p3[0], p3[1]);
}

// What is to be done with each group of a block.
struct Copying {
  top: i32,    // of window 0
  factor: f32, // of a block that lies in it; else 0
}

// windowed_group() knows no subnormal numbers.
@if(has_ranges)
fn in_window(group: vec4<u32>, top: i32) -> vec4<u32> {
  if (top >= window) {
    return windowed_group(group, top);
  }
  return converted(group, top, 0u);
}

@if(has_ranges)
fn copied(x: Square, how: Copying) -> Square {
  if (how.factor != 0.0) {
    return Square(scaled_group(x[0], how.factor), scaled_group(x[1], how.factor), scaled_group(x[2], how.factor),
                  scaled_group(x[3], how.factor), scaled_group(x[4], how.factor), scaled_group(x[5], how.factor),
                  scaled_group(x[6], how.factor), scaled_group(x[7], how.factor));
  }
  // A loop here only: its array leaves the registers (main() below has none).
  var square = x;
  for (var j = 0u; j < 8u; j++) {
    square[j] = in_window(square[j], how.top);
  }
  return square;
}
@else
fn copied(x: Square, how: Copying) -> Square {
  return x;
}

// Finds it for block `id`, from the ranges of all blocks of the same rows or columns.
fn copying_of(here: Block, id: u32, t: u32) -> Copying {
  @if(has_ranges) {
    if (t == 0u) {
      atomicStore(&largest[0], 0u);
      atomicStore(&smallest[0], 0x7fffu);
      atomicStore(&special[0], 0u);
    }
    workgroupBarrier();
    for (var block = t; block * block_k < p.k; block += 256u) {
      add_range(0u, load_ranges(here.row + block));
    }
    workgroupBarrier();
    let top = top_of(range_of(0u));
    return Copying(top, factor_of(load_ranges(id), top));
  }
  @else return Copying();
}

// The first element of an invocation's square of a block, across K and along it. Neighbouring invocations load
// neighbouring groups. Where these run along K, four squares side by side across K store 64 bytes together.
fn square_of(along_k: bool, t: u32) -> vec2<u32> {
  if (along_k) {
    return vec2<u32>(t / 64u * 4u + t / 8u % 4u, t / 32u % 2u * 8u + t % 8u) * 8u;
  }
  return vec2<u32>(t % 16u, t / 16u) * 8u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let id = wid.y * groups.x + wid.x;
  if (id >= p.a_blocks + p.b_blocks) {
    return;
  }
  // All loads before the ranges are waited for. Written out, because an array that a loop indexes may leave the registers.
  let here = block_of(id);
  let at = select(square_of(b_along_k, t), square_of(a_along_k, t), here.is_a) + vec2<u32>(here.first, here.k);
  var square = Square();
  if (here.is_a) {
    let base = base_of_a(here.batch);
    @repeat(i, 8) @if(a_along_k) square[$i] = load_group_a(base, at.x + $iu, at.y, p.k, 0u);
    @repeat(i, 8) @if(!a_along_k) square[$i] = load_group_a(base, at.x, at.y + $iu, p.k, 0u);
  } else {
    let base = base_of_b(here.batch);
    @repeat(i, 8) @if(b_along_k) square[$i] = load_group_b(base, at.x + $iu, at.y, p.k, 0u);
    @repeat(i, 8) @if(!b_along_k) square[$i] = load_group_b(base, at.x, at.y + $iu, p.k, 0u);
  }
  square = copied(square, copying_of(here, id, t));
  let row = here.batch * p.k + at.y;
  if (here.is_a) {
    @if(a_along_k) square = transposed(square);
    @repeat(i, 8) {
      if (at.x / 8u < p.a_groups && at.y + $iu < p.k) {
        store_a_out(p.a_out_at + (row + $iu) * p.a_groups + at.x / 8u, square[$i]);
      }
    }
  } else {
    @if(b_along_k) square = transposed(square);
    @repeat(i, 8) {
      if (at.x / 8u < p.b_groups && at.y + $iu < p.k) {
        store_b_out(p.b_out_at + (row + $iu) * p.b_groups + at.x / 8u, square[$i]);
      }
    }
  }
}

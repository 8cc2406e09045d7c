// Images whose elements are those of smaller images, `stride` apart in each dimension, and zeros between them: the gradient of
// what a convolution with one tap and a stride read. An invocation stores 16 bytes.
//
// @operand out: out {bits128}
// @operand in: in {bits16, bits32}
// @const   channels_inner: bool // channels are innermost, in whole groups of 16 bytes; else rows are such groups
// @grid invocations p.count

struct Params {
  count: u32,             // groups of 16 bytes of `out`
  groups: u32,            // of a position, else of a row,
  columns: u32,           // the positions of a row, else 1,
  rows: u32,              // rows of a plane,
  planes: u32,            // and planes of an image
  stride_depth: u32,
  stride_row: u32,
  stride_column: u32,
  in_planes: u32,         // sizes of `in`
  in_rows: u32,
  in_columns: u32,
}

@if(in_is_bits16) const per_word = 2u;
@else const per_word = 1u;

const in_group = 4u * per_word;

fn element(line: u32, column: u32) -> u32 {
  let at = column / p.stride_column;
  if (at * p.stride_column == column && at < p.in_columns) {
    return load_in(line + at);
  }
  return 0u;
}

// A word of a group: element j, and of two bytes also j + 1. `column` is where the group starts in its row, or in the
// channels of its position.
fn word(line: u32, column: u32, j: u32) -> u32 {
  @if(channels_inner) var bits = load_in(line + column + j);
  @else var bits = element(line, column + j);
  @if(in_is_bits16 && channels_inner) bits |= load_in(line + column + j + 1u) << 16u;
  @elif(in_is_bits16) bits |= element(line, column + j + 1u) << 16u;
  return bits;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * 256u + t;
  if (i >= p.count) {
    return;
  }
  let position = i / p.groups;
  let start = (i - position * p.groups) * in_group;
  let line = position / p.columns;
  let column = position - line * p.columns;
  let plane = line / p.rows;
  let row = line - plane * p.rows;
  let image = plane / p.planes;
  let depth = plane - image * p.planes;

  var words = vec4<u32>();
  let in_row = row / p.stride_row;
  let in_depth = depth / p.stride_depth;
  var exists = in_row * p.stride_row == row && in_row < p.in_rows && in_depth * p.stride_depth == depth &&
      in_depth < p.in_planes;
  @if(channels_inner) let in_column = column / p.stride_column;
  @if(channels_inner) exists = exists && in_column * p.stride_column == column && in_column < p.in_columns;
  if (exists) {
    let in_line = ((image * p.in_planes + in_depth) * p.in_rows + in_row) * p.in_columns;
    @if(channels_inner) let origin = p.in_at + (in_line + in_column) * p.groups * in_group;
    @else let origin = p.in_at + in_line;
    words = vec4<u32>(word(origin, start, 0u), word(origin, start, per_word), word(origin, start, 2u * per_word),
                      word(origin, start, 3u * per_word));
  }
  store_out(p.out_at + i, words);
}

// Images whose elements are those of smaller images, `stride` apart in each dimension, and zeros between them: the gradient of
// what a convolution with one tap and a stride read. An invocation stores 16 bytes.
//
// @operand out: out {bits128}
// @operand in: in {bits16, bits32}
// @const   channels_inner: bool // channels are innermost, in whole groups of 16 bytes; else rows are such groups
// @grid invocations p.count

struct Params {
  // Divisors, as divide_by takes them: the groups of 16 bytes of a position, else of a row; the positions of a row, else 1; the
  // rows of a plane, and the planes of an image.
  groups: vec4<u32>,
  columns: vec4<u32>,
  rows: vec4<u32>,
  planes: vec4<u32>,
  stride_depth: vec4<u32>,
  stride_row: vec4<u32>,
  stride_column: vec4<u32>,
  count: u32,             // groups of 16 bytes of `out`
  in_planes: u32,         // sizes of `in`
  in_rows: u32,
  in_columns: u32,
}

@if(in_is_bits16) const per_word = 2u;
@else const per_word = 1u;

const in_group = 4u * per_word;

// Of a column of `out`.
struct Place {
  at: u32,   // the column of `in` that it has the element of, if `rest` is 0
  rest: u32, // modulo the stride; else the element is zero
}

fn next_place(place: Place) -> Place {
  let rest = place.rest + 1u;
  if (rest == p.stride_column.x) {
    return Place(place.at + 1u, 0u);
  }
  return Place(place.at, rest);
}

fn element(line: u32, place: Place) -> u32 {
  if (place.rest == 0u && place.at < p.in_columns) {
    return load_in(line + place.at);
  }
  return 0u;
}

// A group of a row that starts at `column`.
fn group_of_row(line: u32, column: u32) -> vec4<u32> {
  let first = divide_by(column, p.stride_column);
  var place = Place(first, column - first * p.stride_column.x);
  var words = vec4<u32>();
  @repeat(i, 4) {
    words[$i] = element(line, place);
    place = next_place(place);
    @if(in_is_bits16) words[$i] |= element(line, place) << 16u;
    @if(in_is_bits16) place = next_place(place);
  }
  return words;
}

// A group of the channels of a position.
fn group_of_channels(at: u32) -> vec4<u32> {
  var words = vec4<u32>();
  @repeat(i, 4) {
    words[$i] = load_in(at + per_word * $iu);
    @if(in_is_bits16) words[$i] |= load_in(at + 2u * $iu + 1u) << 16u;
  }
  return words;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (wid.y * groups.x + wid.x) * 256u + t;
  if (i >= p.count) {
    return;
  }
  let position = divide_by(i, p.groups);
  let start = (i - position * p.groups.x) * in_group;
  let line = divide_by(position, p.columns);
  let column = position - line * p.columns.x;
  let plane = divide_by(line, p.rows);
  let row = line - plane * p.rows.x;
  let image = divide_by(plane, p.planes);
  let depth = plane - image * p.planes.x;

  var words = vec4<u32>();
  let in_row = divide_by(row, p.stride_row);
  let in_depth = divide_by(depth, p.stride_depth);
  var exists = in_row * p.stride_row.x == row && in_row < p.in_rows && in_depth * p.stride_depth.x == depth &&
      in_depth < p.in_planes;
  @if(channels_inner) let in_column = divide_by(column, p.stride_column);
  @if(channels_inner) exists = exists && in_column * p.stride_column.x == column && in_column < p.in_columns;
  if (exists) {
    let in_line = ((image * p.in_planes + in_depth) * p.in_rows + in_row) * p.in_columns;
    @if(channels_inner) words = group_of_channels(p.in_at + (in_line + in_column) * p.groups.x * in_group + start);
    @else words = group_of_row(p.in_at + in_line, start);
  }
  store_out(p.out_at + i, words);
}

// Merges neighbouring sorted runs of every row: an element's place is its own rank plus the number
// of elements of the other run that come before it, found by bisection. Equal keys keep the order of
// the runs.

struct Params {
  count: u32, // elements of all rows
  row: u32,
  run: u32,
  in_offset: u32,
  values_offset: u32,
  indices_offset: u32,
}

// @operands
@group(0) @binding(0) var<storage, read_write> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@group(0) @binding(2) var<storage, read> b2: array<u32>;
@group(0) @binding(3) var<storage, read> b3: array<u32>;
fn store_out_keys(i: u32, v: u32) { b0[i] = v; }
fn store_out_indices(i: u32, v: u32) { b1[i] = v; }
fn load_keys(i: u32) -> u32 { return b2[i]; }
fn load_indices(i: u32) -> u32 { return b3[i]; }
// @end

@group(0) @binding(31) var<uniform> p: Params;

// @hook key
alias key_t = u32;
fn key_less(a: u32, b: u32) -> bool { return a < b; }
// @end

// @hook emit
fn emit(row_start: u32, place: u32, key: key_t, index: u32) {
  store_out_keys(place, key);
  store_out_indices(place, index);
}
// @end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let i = (group.y * groups.x + group.x) * 256u + local;
  if (i >= p.count) {
    return;
  }
  let row_start = i / p.row * p.row;
  let position = i - row_start;
  let pair = position / (2u * p.run) * (2u * p.run);
  let middle = min(pair + p.run, p.row);
  let end = min(middle + p.run, p.row);
  let is_left = position < middle;
  let key = load_keys(i);
  var low = select(pair, middle, is_left);
  var high = select(middle, end, is_left);
  let other = low;
  while (low < high) {
    let probe = low + (high - low) / 2u;
    let there = load_keys(row_start + probe);
    // The left run's elements come before equal ones of the right run.
    if (select(!key_less(key, there), key_less(there, key), is_left)) {
      low = probe + 1u;
    } else {
      high = probe;
    }
  }
  let own = position - select(middle, pair, is_left);
  emit(row_start, row_start + pair + own + low - other, key, load_indices(i));
}

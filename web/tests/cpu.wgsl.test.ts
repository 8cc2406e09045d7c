// The compiler of WGSL to JavaScript: types, copies, arithmetic in 32 bits, barriers.
import { expect, test } from "vitest";
import { compile, instantiate } from "./cpu/compile";
import { cpuDevice } from "./cpu/device";

type Call = (...args: unknown[]) => unknown;

const evaluate = (text: string, ...args: unknown[]): unknown =>
  (instantiate(compile(text)).functions.f as unknown as Call)(...args);

test.each([
  ["fn f() -> i32 { return 7 / -2; }", -3],
  ["fn f() -> u32 { return 4000000000u * 3u; }", 3410065408],
  ["fn f() -> i32 { let lowest = -2147483647 - 1; return lowest / -1; }", -2147483648],
  ["fn f() -> i32 { var zero = 0; return -2 / 33 + zero; }", 0],
  ["fn f() -> u32 { return 1u << 31u; }", 2147483648],
  ["fn f() -> i32 { return bitcast<i32>(0x80000000u) >> 4u; }", -134217728],
  ["fn f() -> f32 { return 16777216.0 + 1.0 * 1.0f; }", 16777216],
  ["fn f() -> f32 { return f32(0.1f) + 0.2; }", Math.fround(Math.fround(0.1) + Math.fround(0.2))],
  ["fn f() -> f32 { return round(2.5) + round(-3.5); }", -2],
  ["fn f() -> i32 { return i32(-3.9f) + i32(1e20f); }", 2147483644],
  ["fn f() -> u32 { return bitcast<u32>(-0.0f); }", 2147483648],
  ["fn f() -> bool { return all(vec2<u32>(1u, 2u) == vec2<u32>(1u, 2u)); }", true],
  ["fn f() -> u32 { return countLeadingZeros(1u) + select(1u, 2u, 3 > 2); }", 33],
])("%s", (text, expected) => {
  expect(evaluate(text)).toBe(expected);
});

test("names are copies of what they are given", () => {
  const text = `
    struct Pair { at: vec2<u32>, count: u32 }
    fn f() -> u32 {
      let first = Pair(vec2<u32>(1u, 2u), 3u);
      var second = first;
      second.at.x = 10u;
      let third = second;
      second.count = 20u;
      var list = array<u32, 2>(5u, 6u);
      let before = list;
      list[1] = 7u;
      return first.at.x * 10000u + third.count * 1000u + second.count + before[1] * 100u;
    }`;
  expect(evaluate(text)).toBe(13620);
});

test("pointers change what they point to", () => {
  const text = `
    struct Place { x: u32, y: u32 }
    fn step(p: ptr<function, Place>) { (*p).x += 2u; p.y++; }
    fn f() -> u32 {
      var place = Place(1u, 2u);
      for (var k = 0; k < 3; k++) { step(&place); }
      return place.x * 10u + place.y;
    }`;
  expect(evaluate(text)).toBe(75);
});

test("a name may hide another", () => {
  const text =
    "fn f(x: i32) -> i32 { let y = x; { let y = y + 1; if (y > 1) { return y; } } return y; }";
  expect(evaluate(text, 1)).toBe(2);
});

test("what is not known raises", () => {
  expect(() => compile("fn f() -> f32 { return unheard(1.0); }")).toThrow("unheard");
  expect(() => compile("fn f() -> f32 { return 1u; }")).toThrow("u32 where f32 is wanted");
  expect(() => compile("fn f() -> i32 { let x = 1u + 1i; return x; }")).toThrow("u32 + i32");
  expect(() => compile("fn f( { }")).toThrow(SyntaxError);
});

test("an index beyond an array raises", () => {
  const text = "fn f(i: u32) -> u32 { var a = array<u32, 3>(1u, 2u, 3u); return a[i]; }";
  expect(evaluate(text, 2)).toBe(3);
  expect(() => evaluate(text, 3)).toThrow("index 3 of an array of 3 elements");
});

// Runs a shader of one workgroup of four invocations on a buffer of four words.
async function dispatched(code: string): Promise<number[]> {
  const device = cpuDevice();
  const pipeline = device.createComputePipeline({
    label: "test",
    layout: "auto",
    compute: { module: device.createShaderModule({ code }) },
  });
  const buffer = device.createBuffer({ size: 16, usage: 0 });
  const group = device.createBindGroup({
    layout: device.createBindGroupLayout({ entries: [] }),
    entries: [{ binding: 0, resource: { buffer } }],
  });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group, [0]);
  pass.dispatchWorkgroups(1);
  pass.end();
  device.queue.submit([encoder.finish()]);
  await buffer.mapAsync(1);
  return [...new Uint32Array(buffer.getMappedRange())];
}

const shader = (body: string): string => `
  @group(0) @binding(0) var<storage, read_write> b: array<u32>;
  var<workgroup> shared_words: array<u32, 4>;
  @compute @workgroup_size(4)
  fn main(@builtin(local_invocation_index) i: u32) { ${body} }`;

test("invocations wait for each other at barriers", async () => {
  const text = shader(
    "shared_words[i] = i * 10u; workgroupBarrier(); b[i] = shared_words[(i + 1u) % 4u];",
  );
  expect(await dispatched(text)).toEqual([10, 20, 30, 0]);
});

test("a barrier that some invocations do not reach raises", async () => {
  await expect(
    dispatched(shader("if (i < 2u) { workgroupBarrier(); } b[i] = 1u;")),
  ).rejects.toThrow("2 of 4 invocations do not reach a barrier");
});

test("an access beyond a buffer raises", async () => {
  await expect(dispatched(shader("b[i + 1u] = i;"))).rejects.toThrow("index 4 of an array of 4");
  await expect(dispatched(shader("b[i] = b[i + 1u];"))).rejects.toThrow("index 4 of an array of 4");
});

test("atomics add what all invocations add", async () => {
  const text = `
    @group(0) @binding(0) var<storage, read_write> b: array<atomic<u32>>;
    @compute @workgroup_size(4)
    fn main(@builtin(local_invocation_index) i: u32) {
      let word = &b[1];
      atomicAdd(word, i);
      atomicOr(&b[0], 1u << i);
    }`;
  expect(await dispatched(text)).toEqual([15, 6, 0, 0]);
});

"""torch.webgpu.compile_shader: kernels in WGSL on tensors. docs/custom-kernels.md is tested too."""

import gc

import pytest
import torch
from torch.testing import assert_close

from torch_webgpu import _C
from torch_webgpu._shader.prepare import prepare
from torch_webgpu._shader.program import Program
from torch_webgpu.wgsl import target

compile_shader = torch.webgpu.compile_shader

SCALE = """
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<uniform> factor: f32;

@compute @workgroup_size(64)
fn scale(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < arrayLength(&out)) { out[id.x] = factor * x[id.x]; }
}

@compute @workgroup_size(32)
fn increment(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < arrayLength(&out)) { out[id.x] += 1.0; }
}
"""


@pytest.fixture(scope="module")
def lib():
    return compile_shader(SCALE)


def arange(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float32).to(dtype).view(shape).to("webgpu")


def word_kernel(body: str, **options):
    """A kernel that writes u32 words; `i` is the invocation's number."""
    source = (
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n"
        + options.pop("declarations", "")
        + "@compute @workgroup_size(32) fn run(@builtin(global_invocation_id) id: vec3u) {\n"
        + "let i = id.x; if (i >= arrayLength(&out)) { return; }\n"
        + body
        + "}"
    )
    return compile_shader(source, **options).run


class TestLaunch:
    def test_two_entry_points(self, lib):
        x, out = arange(3, 50), torch.empty(3, 50, device="webgpu")
        lib.scale(out, x, 2.5)
        lib.increment(out)
        assert_close(out, x * 2.5 + 1)

    def test_describes_itself(self, lib):
        assert {"scale", "increment"} <= set(dir(lib))
        assert lib.scale.arguments == ("out", "x", "factor")
        assert lib.increment.arguments == ("out",)
        assert lib.increment.workgroup_size == (32, 1, 1)
        assert "scale(out: out array<f32>, x: in array<f32>, factor: uniform f32)" in repr(lib)

    def test_entry_points_may_share_a_number(self):
        lib = compile_shader("""
            @group(0) @binding(0) var<storage, read_write> a: array<f32>;
            @group(0) @binding(0) var<storage, read_write> b: array<i32>;
            @compute @workgroup_size(1) fn first() { a[0] = 1.5; }
            @compute @workgroup_size(1) fn second() { b[0] = 7; }
        """)
        x, y = torch.zeros(1, device="webgpu"), torch.zeros(1, dtype=torch.int32, device="webgpu")
        lib.first(x)
        lib.second(y)
        assert (x.item(), y.item()) == (1.5, 7)

    def test_arguments_used_in_functions_count(self):
        run = compile_shader("""
            /* No argument: @group(0) @binding(9) var<storage> y: array<f32>; /* nested */ */
            @group(0) @binding(7) var<uniform> step: u32;
            @group(0) @binding(3) var<storage, read_write> out: array<u32>;
            @group(0) @binding(5) var<storage> unused: array<u32>;
            fn value(i: u32) -> u32 { let unused = step; return inner(i) * unused; }
            fn inner(i: u32) -> u32 { return out[i]; }
            @compute @workgroup_size(4) fn run(@builtin(local_invocation_index) i: u32) {
              out[i] = value(i);
            }
        """).run
        assert run.arguments == ("out", "step")
        out = arange(4, dtype=torch.uint32)
        run(out, 3)
        assert out.tolist() == [0, 3, 6, 9]

    def test_threads_are_rounded_up_to_workgroups(self):
        count = compile_shader("""
            @group(0) @binding(0) var<storage, read_write> n: atomic<u32>;
            @compute @workgroup_size(4, 2) fn count() { atomicAdd(&n, 1); }
        """).count
        for extent, expected in (
            ({"threads": 9}, 24),
            ({"threads": (9, 3)}, 48),
            ({"threads": (4, 2, 3)}, 24),
            ({"workgroups": 2}, 16),
            ({"workgroups": (2, 3)}, 48),
            ({"threads": 0}, 0),
            ({}, 8),
        ):
            n = torch.zeros(1, dtype=torch.uint32, device="webgpu")
            count(n, **extent)
            assert n.item() == expected, extent

    def test_constants(self):
        run = word_kernel(
            "out[i] = count * n;",
            declarations="@id(7) override count: u32 = 2; override n: u32; const k = 3;\n",
            constants={"count": 5, "n": 4},
        )
        out = torch.zeros(3, dtype=torch.uint32, device="webgpu")
        run(out)
        assert out.tolist() == [20, 20, 20]

    def test_workgroup_size_of_expressions(self):
        lib = compile_shader("""
            override side = 4u; const half_ = (0x8u - 4) / 2;
            @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @compute @workgroup_size(side * 2, half_, 1u) fn run() { x[0] = 1; }
        """)
        assert lib.run.workgroup_size == (8, 2, 1)

    def test_equal_programs_share_a_pipeline(self, lib):
        before = torch.webgpu.stats()["pipelines"]
        again = compile_shader(SCALE)
        assert torch.webgpu.stats()["pipelines"] == before
        del again
        gc.collect()
        x = torch.ones(5, device="webgpu")
        lib.increment(x)
        assert x.tolist() == [2.0] * 5

    def test_appears_in_the_profile(self, lib):
        if "timestamp-query" not in torch.webgpu.get_device_properties().features:
            pytest.skip("no timestamps")
        x = torch.ones(5, device="webgpu")
        with torch.webgpu.profile() as profile:
            lib.increment(x)
        assert [entry.name for entry in profile.entries] == ["increment"]


class TestUniforms:
    @pytest.mark.parametrize(
        ("wgsl", "value", "words"),
        [
            ("f32", 1.5, [0x3FC00000]),
            ("f32", 2, [0x40000000]),
            ("f32", True, [0x3F800000]),
            ("f32", float("inf"), [0x7F800000]),
            ("f32", 1e300, [0x7F800000]),
            ("f32", torch.tensor(0.5), [0x3F000000]),
            ("i32", -2, [0xFFFFFFFE]),
            ("u32", 2**32 - 1, [0xFFFFFFFF]),
            ("vec3<u32>", (1, 2, 3), [1, 2, 3]),
            ("vec2i", [-1, 1], [0xFFFFFFFF, 1]),
            ("mat2x3f", ((1, 2, 4), (8, 16, 32)), [0x3F800000, 0x40000000, 0x40800000]),
            ("array<vec4u, 2>", [(1, 2, 3, 4), (5, 6, 7, 8)], [1, 2, 3, 4, 5, 6, 7, 8]),
            ("Pair", {"b": (7, 8), "a": 1}, [1, 0, 7, 8]),
            ("Pair", (1, (7, 8)), [1, 0, 7, 8]),
            ("Short", (5, 6), [5, 0, 0, 0, 6]),
        ],
    )
    def test_values(self, wgsl, value, words):
        # The bytes of the uniform as the shader sees them, by its members.
        reads = {
            "f32": ["bitcast<u32>(v)"],
            "i32": ["bitcast<u32>(v)"],
            "u32": ["v"],
            "vec3<u32>": ["v.x", "v.y", "v[2]"],
            "vec2i": ["bitcast<u32>(v.x)", "bitcast<u32>(v[1])"],
            "mat2x3f": [f"bitcast<u32>(v[0][{k}])" for k in range(3)],
            "array<vec4u, 2>": [f"v[{k // 4}u][{k % 4}]" for k in range(8)],
            "Pair": ["v.a", "0u", "v.b.x", "v.b.y"],
            "Short": ["v.a", "0u", "0u", "0u", "v.b"],
        }[wgsl]
        run = word_kernel(
            "let words = array<u32, 8>(" + ", ".join([*reads, *["0u"] * (8 - len(reads))]) + ");"
            "out[i] = words[i] + before + after;",
            declarations=f"""
                struct Pair {{ a: u32, b: vec2u }}
                struct Short {{ a: u32, @align(16) b: Word }}
                alias Word = u32;
                @group(0) @binding(1) var<uniform> before: u32;
                @group(0) @binding(2) var<uniform> v: {wgsl};
                @group(0) @binding(3) var<uniform> after: u32;
            """,
        )
        out = torch.zeros(len(words), dtype=torch.uint32, device="webgpu")
        run(out, 0, value, 0)
        assert out.tolist() == words

    def test_half(self):
        if "shader-f16" not in torch.webgpu.get_device_properties().features:
            pytest.skip("no shader-f16")
        lib = compile_shader("""
            enable f16;
            @group(0) @binding(0) var<storage, read_write> out: array<vec2h>;
            @group(0) @binding(1) var<uniform> scale: f16;
            @compute @workgroup_size(1) fn run(@builtin(workgroup_id) id: vec3u) {
              out[id.x] *= scale;
            }
        """)
        x = arange(6, dtype=torch.float16)
        lib.run(x, 0.5, workgroups=3)
        assert x.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]

    @pytest.mark.parametrize(
        ("wgsl", "value", "error"),
        [
            ("u32", -1, OverflowError),
            ("u32", 2**32, OverflowError),
            ("i32", 2**31, OverflowError),
            ("i32", 1.0, TypeError),
            ("f32", "1", TypeError),
            ("f32", None, TypeError),
            ("f32", (1.0,), TypeError),
            ("f32", torch.ones(2), TypeError),
            ("vec3f", 1.0, TypeError),
            ("vec3f", (1.0, 2.0), TypeError),
            ("vec3f", "abc", TypeError),
            ("Pair", {"a": 1}, TypeError),
            ("Pair", {"a": 1, "b": 2, "c": 3}, TypeError),
            ("Pair", (1, 2, 3), TypeError),
        ],
    )
    def test_wrong_values(self, wgsl, value, error):
        run = word_kernel(
            "let copy = v; out[i] = 1u;",
            declarations=f"struct Pair {{ a: u32, b: u32 }}\n"
            f"@group(0) @binding(1) var<uniform> v: {wgsl};\n",
        )
        out = torch.zeros(4, dtype=torch.uint32, device="webgpu")
        with pytest.raises(error, match=r"run\(\): 'v"):
            run(out, value)
        assert not out.any()

    def test_a_tensor_on_the_device_is_no_number(self, lib):
        x = torch.ones(3, device="webgpu")
        with pytest.raises(TypeError, match=r"\.item\(\)"):
            lib.scale(x, x.clone(), torch.tensor(2.0, device="webgpu"))

    def test_too_many_bytes(self):
        with pytest.raises(NotImplementedError, match="uniforms"):
            word_kernel(
                "out[i] = v[i].x;",
                declarations="@group(0) @binding(1) var<uniform> v: array<vec4u, 65>;\n",
            )


class TestTensors:
    def test_views_with_offsets(self, lib):
        base = arange(10, 7)
        x = base[2:5]  # starts at 56 bytes
        out = torch.zeros(6, 21, device="webgpu")
        lib.scale(out[3], x, 3.0)
        assert_close(out[3], 3 * x.reshape(-1))
        assert not out[:3].any() and not out[4:].any()

    def test_two_views_of_one_storage(self, lib):
        base = arange(4, 64)  # rows start at multiples of 256 bytes
        lib.scale(base[0], base[2], 10.0)
        lib.scale(base[3], base[1], 0.0)
        expected = torch.arange(256.0).view(4, 64)
        expected[0] = 10 * expected[2]
        expected[3] = 0
        assert_close(base.cpu(), expected)

    def test_one_input_twice(self):
        lib = compile_shader("""
            @group(0) @binding(0) var<storage, read_write> out: array<f32>;
            @group(0) @binding(1) var<storage> a: array<f32>;
            @group(0) @binding(2) var<storage> b: array<f32>;
            @compute @workgroup_size(64)
            fn mul(@builtin(global_invocation_id) id: vec3u) {
              if (id.x < arrayLength(&out)) { out[id.x] = a[id.x] * b[id.x]; }
            }
        """)
        x = arange(70)
        out = torch.empty_like(x)
        lib.mul(out, x, x)
        assert_close(out, x * x)

    def test_overlap_is_refused(self, lib):
        x = arange(10)
        with pytest.raises(RuntimeError, match="'out' and 'x' share memory"):
            lib.scale(x, x, 2.0)
        with pytest.raises(RuntimeError, match="share memory"):
            lib.scale(x[:6], x[4:], 2.0)
        assert_close(x, arange(10))

    def test_narrow_dtypes_are_words(self):
        run = word_kernel("out[i] = out[i] ^ 0xFFFFFFFFu;")
        base = torch.arange(13, dtype=torch.uint8, device="webgpu")
        run(base[4:11])  # ends within a word that holds other elements
        expected = [0, 1, 2, 3, *(255 - k for k in range(4, 11)), 11, 12]
        assert base.tolist() == expected
        run(base[1:2])
        assert base.tolist() == [0, 254, *expected[2:]]

    @pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.int16, torch.bool])
    def test_dtypes_without_a_wgsl_type(self, dtype):
        run = word_kernel(
            "out[i] = x[i];", declarations="@group(0) @binding(1) var<storage> x: array<u32>;\n"
        )
        x = (arange(9) % 2).to(dtype)
        out = torch.zeros_like(x)
        run(out, x, threads=64)
        assert torch.equal(out.cpu(), x.cpu())

    def test_complex_is_two_floats(self):
        lib = compile_shader("""
            @group(0) @binding(0) var<storage, read_write> z: array<vec2f>;
            @compute @workgroup_size(64) fn turn(@builtin(global_invocation_id) id: vec3u) {
              if (id.x < arrayLength(&z)) { z[id.x] = vec2f(-z[id.x].y, z[id.x].x); }
            }
        """)
        z = torch.randn(5, dtype=torch.complex64).to("webgpu")
        expected = z.cpu() * 1j
        lib.turn(z)
        assert_close(z.cpu(), expected)
        with pytest.raises(RuntimeError, match="lazy conjugate"):
            lib.turn(z.conj())

    def test_structs(self):
        lib = compile_shader("""
            struct Particle { place: vec3f, id: u32 }
            struct World { count: u32, particles: array<Particle> }
            @group(0) @binding(0) var<storage, read_write> world: World;
            @compute @workgroup_size(4) fn run(@builtin(global_invocation_id) id: vec3u) {
              let all = &world.particles;
              let one = &all[id.x];
              if (id.x < arrayLength(all)) { one.place[id.x % 3u] += 1.0; (*one).id = id.x; }
            }
        """)
        world = torch.zeros(4 + 4 * 3, device="webgpu")
        lib.run(world, threads=3)
        particles = world[4:].cpu().view(3, 4)
        assert_close(particles[:, :3], torch.eye(3))
        assert particles[:, 3].contiguous().view(torch.int32).tolist() == [0, 1, 2]
        with pytest.raises(RuntimeError, match="at least 32"):
            lib.run(torch.zeros(7, device="webgpu"))

    @pytest.mark.parametrize(
        ("make", "error", "text"),
        [
            (lambda: torch.ones(4), TypeError, "on cpu"),
            (lambda: 3.0, TypeError, "got float"),
            (lambda: [1.0], TypeError, "got list"),
            (lambda: torch.ones(4, dtype=torch.int32, device="webgpu"), TypeError, "torch.int32"),
            (lambda: torch.ones(4, dtype=torch.float64, device="webgpu"), TypeError, "float64"),
            (lambda: torch.ones(4, 4, device="webgpu").t(), RuntimeError, "not contiguous"),
            (lambda: torch.ones(8, device="webgpu")[::2], RuntimeError, "not contiguous"),
            (lambda: torch.ones(1, device="webgpu").expand(4), RuntimeError, "not contiguous"),
            (lambda: torch.ones(0, device="webgpu"), RuntimeError, "multiple of 4"),
            (lambda: torch.ones(4, device="meta"), TypeError, "on meta"),
        ],
    )
    def test_wrong_tensors(self, lib, make, error, text):
        out = torch.zeros(4, device="webgpu")
        with pytest.raises(error, match=text):
            lib.scale(out, make(), 1.0)
        assert not out.any()

    def test_elements_that_do_not_divide_the_tensor(self):
        lib = compile_shader("""
            @group(0) @binding(0) var<storage, read_write> x: array<vec4f>;
            @compute @workgroup_size(1) fn run() { x[0] = vec4f(1); }
        """)
        with pytest.raises(RuntimeError, match="multiple of 16 bytes, got a tensor of 24"):
            lib.run(torch.zeros(6, device="webgpu"))

    def test_without_elements_nothing_runs(self, lib):
        empty = torch.empty(0, device="webgpu")
        before = torch.webgpu.stats()["dispatches"]
        lib.increment(empty)
        assert torch.webgpu.stats()["dispatches"] == before

    def test_larger_than_a_binding(self, lib):
        x = torch.zeros(1000, device="webgpu")
        with (
            target(limits={"max_storage_binding_size": 2048}),
            pytest.raises(NotImplementedError, match="larger than a storage binding"),
        ):
            lib.increment(x)
        lib.increment(x)
        assert x.sum().item() == 1000


class TestBadPrograms:
    @pytest.mark.parametrize(
        ("source", "error", "text"),
        [
            ("fn f( {", SyntaxError, "expected"),
            ("no WGSL", SyntaxError, "error"),
            ("@compute @workgroup_size(1) fn f() { x = 1; }", SyntaxError, "x"),
            ("", ValueError, "no @compute function"),
            ("fn f() {}", ValueError, "no @compute function"),
            ("@compute @workgroup_size(100000) fn f() {}", RuntimeError, "workgroup"),
            (
                "@group(1) @binding(0) var<storage, read_write> x: array<u32>;"
                "@compute @workgroup_size(1) fn f() { x[0] = 1; }",
                NotImplementedError,
                "another group",
            ),
            (
                "@group(0) @binding(0) var t: texture_2d<f32>;"
                "@compute @workgroup_size(1) fn f() { let size = textureDimensions(t); }",
                NotImplementedError,
                "texture",
            ),
            (
                "override n: u32;@group(0) @binding(0) var<storage, read_write> x: array<u32>;"
                "@compute @workgroup_size(1) fn f() { x[0] = n; }",
                RuntimeError,
                "n",
            ),
        ],
    )
    def test_is_an_error_and_the_device_stays_usable(self, source, error, text):
        with pytest.raises(error, match=text):
            compile_shader(source)
        assert (torch.ones(3, device="webgpu") + 1).tolist() == [2.0] * 3

    def test_too_many_tensors(self):
        count = torch.webgpu.get_device_properties().limits["max_storage_buffers"] + 1
        declarations = "".join(
            f"@group(0) @binding({i}) var<storage, read_write> x{i}: array<u32>;"
            for i in range(count)
        )
        uses = "".join(f"x{i}[0] = 1;" for i in range(count))
        with pytest.raises(RuntimeError, match=f"{count} storage buffers"):
            compile_shader(f"{declarations}@compute @workgroup_size(1) fn f() {{ {uses} }}")

    def test_unknown_constant(self):
        with pytest.raises(ValueError, match="declares no override factor"):
            compile_shader(SCALE, constants={"factor": 1})

    def test_not_a_string(self):
        with pytest.raises(TypeError, match="bytes"):
            compile_shader(SCALE.encode())

    def test_wrong_calls(self, lib):
        x = torch.zeros(4, device="webgpu")
        with pytest.raises(AttributeError, match="no kernel 'twice', but scale, increment"):
            _ = lib.twice
        with pytest.raises(TypeError, match=r"takes 1 arguments \(out\), got 0"):
            lib.increment()
        with pytest.raises(TypeError, match="takes 1 arguments"):
            lib.increment(x, x)
        for wrong in (-1, (1, 2, 3, 4), (), (1.0,)):
            with pytest.raises(TypeError, match="threads takes"):
                lib.increment(x, threads=wrong)
        with pytest.raises(TypeError, match="not both"):
            lib.increment(x, threads=1, workgroups=1)
        with pytest.raises(RuntimeError, match="in a dimension"):
            lib.increment(x, workgroups=1 << 20)
        with pytest.raises(TypeError, match="no tensor"):
            compile_shader("@compute @workgroup_size(1) fn f() {}").f()
        assert not x.any()


class TestBounds:
    """The device runs the backend's kernels without robustness; a user's kernel has it."""

    def test_indices_beyond_the_end_mean_the_last_element(self, lib):
        run = compile_shader("""
            struct Row { values: array<f32, 4>, weight: mat2x2f }
            @group(0) @binding(0) var<storage, read_write> out: array<f32>;
            @group(0) @binding(1) var<storage> x: array<f32>;
            @group(0) @binding(2) var<storage> rows: array<Row>;
            @group(0) @binding(3) var<uniform> far: u32;
            var<private> own: array<f32, 3> = array<f32, 3>(1, 2, 3);
            fn last(p: ptr<function, array<f32, 2>>, i: u32) -> f32 { return p[i] + (*p)[i]; }
            @compute @workgroup_size(1) fn run() {
              var pair: array<f32, 2> = array<f32, 2>(1, 10);
              let p = &out;
              let q = &(*p)[0];
              *q = x[far];
              p[1] = rows[far].values[far];
              (*p)[2] = rows[far].weight[far][far];
              (p)[3] = own[far];
              p[4] = last(&pair, far);
              out[5] = x[-i32(far)];
              out[6] = x[u32(x[far]) * far];
              { let out = far; let x = array(f32(out), 1.0); own[0] = x[0]; }
              for (var far = 0u; far < 1; far++) { out[7] = x[far]; }
              out[far] = 9.0;
            }
        """).run
        # What lies behind and before the tensors is seen only if indices are not clamped.
        base = torch.full((64 * 4,), 77.0, device="webgpu")
        x = base[64:128].copy_(torch.arange(64.0))
        rows = arange(16)
        out = torch.zeros(9, device="webgpu")
        run(out, x, rows, 1_000_000, workgroups=1)
        assert out.tolist() == [63, 11, 15, 3, 20, 63, 63, 0, 9]

    def test_workgroup_variables_start_as_zeros(self):
        lib = compile_shader("""
            struct Slot { count: atomic<u32>, sums: array<vec2f, 2> }
            @group(0) @binding(0) var<storage, read_write> out: array<u32>;
            override size: u32 = 70;
            var<workgroup> words: array<u32, size>;
            var<workgroup> slots: array<Slot, 3>;
            var<workgroup> grid: array<array<atomic<i32>, 4>, 2>;
            var<workgroup> one: vec3u;
            var<workgroup> flag: bool;

            struct In {
              @builtin(local_invocation_index) lane: u32,
              @builtin(workgroup_id) group: vec3u,
            }
            @compute @workgroup_size(16) fn run(in: In) {
              var seen = one.x + one.z + u32(flag);
              for (var i = 0u; i < size; i++) { seen |= words[i]; }
              for (var i = 0u; i < 3u; i++) {
                seen |= atomicLoad(&slots[i].count) | bitcast<u32>(slots[i].sums[1].y);
              }
              seen |= bitcast<u32>(atomicLoad(&grid[1][3]));
              workgroupBarrier();
              if (in.lane < size) { words[in.lane] = 0xFFu; }
              for (var i = 0u; i < size; i++) { words[i] = 0xFFu; }
              if (in.lane == 0) {
                atomicStore(&grid[1][3], -1);
                slots[in.group.x % 3u].sums[1].y = 1.0;
                one = vec3u(5);
                flag = true;
              }
              workgroupBarrier();
              out[in.group.x * 16 + in.lane] = seen + select(0u, 1u, words[size - 1] != 0xFFu);
            }
        """)
        out = torch.full((16 * 200,), 3, dtype=torch.uint32, device="webgpu")
        lib.run(out)
        assert not out.cpu().view(torch.int32).any()

    def test_addresses_that_escape_are_refused(self):
        with pytest.raises(NotImplementedError, match="line 4: the address of 'out'"):
            word_kernel("let p = (&out);\n p[i] = 1u;")

    def test_every_shader_of_the_backend_can_be_prepared(self):
        # A large body of WGSL: each shape of the generators, one in five hundred of the forms.
        for label, source in _C._shader_sources("browser", {})[::500]:
            prepared = prepare(Program(source, {}), "main")
            assert _C.shader_error(prepared.source) == "", label


class TestAutograd:
    def test_a_written_tensor_that_requires_grad_is_refused(self, lib):
        x = torch.ones(3, device="webgpu", requires_grad=True)
        out = torch.empty(3, device="webgpu")
        lib.scale(out, x, 2.0)
        assert not out.requires_grad
        with pytest.raises(RuntimeError, match="requires grad"):
            lib.increment(x)
        with torch.no_grad():
            lib.increment(x)
        assert x.tolist() == [2.0] * 3

    def test_writing_counts_as_in_place(self, lib):
        x = torch.ones(3, device="webgpu", requires_grad=True)
        y = x.exp()
        lib.increment(y.detach())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_function(self, lib):
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.factor = factor
                out = torch.empty_like(x)
                lib.scale(out, x, factor)
                return out

            @staticmethod
            def backward(ctx, gradient):
                out = torch.empty_like(gradient)
                lib.scale(out, gradient.contiguous(), ctx.factor)
                return out, None

        x = torch.randn(5, 3, device="webgpu", requires_grad=True)
        (Scale.apply(x, 4.0) * x).sum().backward()
        assert_close(x.grad, 8 * x.detach())

    def test_inference_mode(self, lib):
        with torch.inference_mode():
            x = torch.ones(3, device="webgpu")
            lib.increment(x)
        assert x.tolist() == [2.0] * 3


def test_variables_start_with_zeros_each_time_around_a_loop():
    lib = compile_shader("""
        alias Pair = vec2<u32>;
        struct Sums { few: Pair, many: array<u32, 3> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;

        fn sum_to(n: u32) -> u32 {
          var all = 0u;
          for (var i = 0u; i < n; i++) {
            var part: u32; /* a sum */ var<function> sums : Sums ;
            for (var k = 0u; k <= i; k++) {
              part += 1u;
              sums.few.y += 1u;
              sums.many[1 + 1] += 1u;
            }
            all += part + sums.few.y + sums.many[2];
          }
          return all;
        }

        @compute @workgroup_size(8)
        fn sums(@builtin(local_invocation_index) i: u32) { out[i] = sum_to(i); }
    """)
    out = torch.empty(8, dtype=torch.uint32, device="webgpu")
    lib.sums(out)
    assert out.tolist() == [3 * sum(range(1, n + 1)) for n in range(8)]

"""The workgroup memory that we count in shaders, by which targets refuse kernels."""

import pytest

from torch_webgpu import _C

from .programs import assert_valid, complaints


def test_it_is_what_dawn_counts():
    found = complaints("validate_workgroup_memory")
    assert len(found) > 30
    assert_valid(found)


@pytest.mark.parametrize(
    ("type", "size"),
    [
        ("u32", 16),
        ("array<f32, 5>", 32),
        ("array<vec3<f32>, 3>", 48),
        ("array<vec3f, 3>", 48),
        ("array<vec2<f16>, 6>", 32),
        ("atomic<u32>", 16),
        ("mat3x4<f32>", 48),
        ("array<array<u32, n>, (n + 1) * 2u>", 96),
        ("array<u32, 0x10 / 2 % 5 - 1>", 16),
        ("array<u32, max(n * 2u, min(n, 3u)) + 2u>", 32),
        ("array<Pair, n>", 96),
        ("pairs", 48),
    ],
)
def test_types(type, size):
    shader = f"""
        const twice = 2i; // const n = 5;
        const n: i32 = twice + 1;
        struct Pair {{ first: f32, second: vec4<f32>, }}
        struct Half {{ a: f16, b: u32, c: vec2<f32> }}
        alias pairs = array<Half, 3>;
        var<workgroup> counted: {type};
        var<private> other: array<f32, 100>;
        var<workgroup> unused: array<f32, 100>;
        fn helper() {{ _ = &counted; }}
        fn idle() {{ _ = &unused; }}
        fn main() {{ const n = 7; helper(); }}
    """
    assert _C.workgroup_memory(shader) == size


def test_a_shader_without_workgroup_variables_uses_none():
    assert _C.workgroup_memory("fn main() {}") == 0


@pytest.mark.parametrize("type", ["texture", "array<u32, f(3)>", "array<u32, 2 / 0>", "array<u32>"])
def test_a_type_that_is_not_understood_raises(type):
    with pytest.raises(RuntimeError, match="how much workgroup memory"):
        _C.workgroup_memory(f"var<workgroup> counted: {type};")

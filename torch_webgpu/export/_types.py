"""TypeScript's types of an exported file."""

from torch_webgpu.graphs import _format as form
from torch_webgpu.graphs._expressions import names_in

_NUMBERS = {"u64": "bigint | number", "u32": "number", "i32": "number", "f32": "number"}


def declarations(program: form.Program, file: str) -> str:
    """The text of a .d.ts for ``load<Functions>(...)`` of the package torch-webgpu."""
    lines = [
        f"// The functions of {file}, as torch.webgpu.export wrote it.",
        'import type { InputOf, OutputOf, RunOptions } from "torch-webgpu";',
        "",
        # A type and not an interface, so that load() takes it.
        "export type Functions = {",
    ]
    for name, function in program.functions.items():
        lines.append(f"  {name}(")
        used = _used_buffers(function)
        required = any(not view.optional for view in function.inputs.values())
        lines.append(f"    inputs{'' if required else '?'}: {{")
        for label, view in function.inputs.items():
            optional = "?" if view.optional else ""
            unused = "" if view.buffer in used else "; not used"
            lines.append(f"      /** {_shape(program, view)}{unused} */")
            lines.append(f"      {label}{optional}: InputOf<{_quoted(view.dtype)}>;")
        for label in _settable(program, function):
            lines.append(f"      {label}?: {_NUMBERS[program.numbers[label].type]};")
        lines += ["    },", "    options?: RunOptions,", "  ): Promise<{"]
        for label, output in function.outputs.items():
            lines.append(f"    /** {_shape(program, output)} */")
            lines.append(f"    {label}: OutputOf<{_quoted(output.dtype)}>;")
        lines.append("  }>;")
    states = " | ".join(_quoted(name) for name in program.state) or "never"
    lines += ["};", "", f"export type States = {states};", ""]
    return "\n".join(lines)


def _used_buffers(function: form.Function) -> set[int | None]:
    """The buffers that commands name, and those of outputs."""
    used = {view.buffer for view in function.outputs.values()}
    for variant in function.variants:
        for command in variant.commands:
            if isinstance(command, form.Dispatch):
                used.update(buffer for buffer, *_ in command.bind)
            elif isinstance(command, form.Copy):
                used.update((command.source[0], command.target[0]))
            else:
                used.add(command.target[0])
    return used


def _settable(program: form.Program, function: form.Function) -> list[str]:
    """The numbers that a call of the function may set, and that it uses."""
    used: set[str] = set()
    for variant in function.variants:
        for command in variant.commands:
            if isinstance(command, form.Dispatch):
                used = used.union(*map(names_in, (*command.grid, *command.words)))
    return [name for name, number in program.numbers.items() if number.input and name in used]


def _shape(program: form.Program, view: form.View) -> str:
    names = sorted(set().union(*map(names_in, view.shape)))
    ranges = [
        f"; {name} is {program.dimensions[name].min} to {program.dimensions[name].max}"
        for name in names
    ]
    return f"{view.dtype}[{', '.join(map(_size, view.shape))}]{''.join(ranges)}"


def _size(size: form.Expression) -> str:
    if not isinstance(size, list):
        return str(size)
    sign, *operands = size
    a, b = (f"({_size(part)})" if isinstance(part, list) else _size(part) for part in operands)
    if sign in ("min", "max"):
        return f"{sign}({a}, {b})"
    return f"ceil({a} / {b})" if sign == "ceil/" else f"{a} {sign} {b}"


def _quoted(text: str) -> str:
    return f'"{text}"'

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
        required = any(not view.optional for view in function.inputs.values())
        lines.append(f"    inputs{'' if required else '?'}: {{")
        for label, view in function.inputs.items():
            optional = "?" if view.optional else ""
            lines.append(f"      /** {_shape(view)} */")
            lines.append(f"      {label}{optional}: InputOf<{_quoted(view.dtype)}>;")
        for label in _settable(program, function):
            lines.append(f"      {label}?: {_NUMBERS[program.numbers[label].type]};")
        lines += ["    },", "    options?: RunOptions,", "  ): Promise<{"]
        for label, output in function.outputs.items():
            lines.append(f"    /** {_shape(output)} */")
            lines.append(f"    {label}: OutputOf<{_quoted(output.dtype)}>;")
        lines.append("  }>;")
    states = " | ".join(_quoted(name) for name in program.state) or "never"
    lines += ["};", "", f"export type States = {states};", ""]
    return "\n".join(lines)


def _settable(program: form.Program, function: form.Function) -> list[str]:
    """The numbers that a call of the function may set, and that it uses."""
    used: set[str] = set()
    for variant in function.variants:
        for command in variant.commands:
            if isinstance(command, form.Dispatch):
                used = used.union(*map(names_in, (*command.grid, *command.words)))
    return [name for name, number in program.numbers.items() if number.input and name in used]


def _shape(view: form.View) -> str:
    return f"{view.dtype}[{', '.join(map(str, view.shape))}]"


def _quoted(text: str) -> str:
    return f'"{text}"'

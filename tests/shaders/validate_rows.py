"""`python validate_rows.py wgpudawn` compiles kernels for each row of their tables with Tint,
`... wgpu` with naga.

Prints a JSON object from family to form to complaint, "" where there is none.
"""

import importlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.shaders.row_forms import FAMILIES, row_forms


def main() -> None:
    adapter = importlib.import_module(sys.argv[1]).gpu.enumerate_adapters_sync()[0]
    device = adapter.request_device_sync()
    complaints: dict[str, dict[str, str]] = {}
    for family in FAMILIES:
        complaints[family] = {}
        for form, source in row_forms(family):
            try:
                device.create_shader_module(code=source)
                complaint = ""
            except Exception as error:
                complaint = f"{error}\n{source}"
            complaints[family][form] = complaint
    json.dump(complaints, sys.stdout)


if __name__ == "__main__":
    main()

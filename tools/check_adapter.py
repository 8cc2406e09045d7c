"""Asks the WebGPU runtime for an adapter and prints its name; exits with 1 where there is none."""

import importlib
import os
import sys


def main() -> int:
    runtime = os.environ.get("TORCH_WEBGPU_RUNTIME") or "dawn"
    modules = {"dawn": "wgpudawn", "wgpu": "wgpu"}
    if runtime not in modules:
        print(f"[torch-webgpu] adapter not checked: the runtime is {runtime}")
        return 0
    gpu = importlib.import_module(modules[runtime]).gpu
    try:
        adapter = gpu.request_adapter_sync(power_preference="high-performance")
    except RuntimeError as error:
        print(f"[torch-webgpu] {error}", file=sys.stderr)
        return 1
    info = adapter.info
    print(
        f"[torch-webgpu] adapter: {info['device']} ({info['backend_type']}, {info['adapter_type']})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

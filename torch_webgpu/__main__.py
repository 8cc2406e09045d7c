"""``python -m torch_webgpu``: versions, adapters, what the device grants, and a self-test.

Exits with 1 if there is no device or a test fails.
"""

import argparse
import json
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_webgpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-test", action="store_true", help="leave the self-test out")
    arguments = parser.parse_args()

    import torch

    if torch._C._get_privateuse1_backend_name() != "webgpu" or not hasattr(torch, "webgpu"):
        print("The device 'webgpu' is not registered; the warning above says why.")
        return 1
    from torch_webgpu import _environment

    facts = _environment.collect()
    ran = not facts["error"] and not arguments.no_test
    if not arguments.json:
        print(_environment.report(facts))
        if ran:
            print("\nSelf-test", flush=True)
    results = _environment.self_test() if ran else {}
    if arguments.json:
        print(json.dumps({**facts, "self_test": results}, indent=2))
    else:
        for name, error in results.items():
            print(f"  {name:<18}  {error or 'passed'}")
    return 1 if facts["error"] or any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Where the CPU and the device differ, and should. Each entry says why."""

import re
from typing import NamedTuple


class Known(NamedTuple):
    reason: str
    text: str = ""  # of the step; not made at all
    difference: str = ""  # of the difference found; not reported


KNOWN = [
    Known(
        "clamp refuses limits on another device, as on CUDA; on the CPU they are all there",
        r"clamp.*torch\.tensor\(",
        r"raises: RuntimeError: Expected all tensors to be on the same device",
    ),
]

LEFT_OUT = re.compile("|".join(k.text for k in KNOWN if k.text and not k.difference) or r"(?!)")


def left_out(step):
    return bool(LEFT_OUT.search(step.text))


def reason_for(step, difference):
    """Why a difference is none; None if it is one."""
    for known in KNOWN:
        if known.difference and re.search(known.difference, difference):
            if re.search(known.text, step.text):
                return known.reason
    return None

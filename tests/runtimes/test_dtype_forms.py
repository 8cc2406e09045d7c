"""Every form of dtype_forms.py on the second runtime (compiler: naga) and driver.

Dawn with the default driver meets these forms, and more, in the tests of the operators.
"""

import pytest
from settings import report


@pytest.mark.parametrize("setting", ["wgpu-native", "SwiftShader"])
def test_every_form(setting):
    complaints = report("dtype_forms.py", setting)
    assert len(complaints) > 400
    wrong = [f"{form}: {text}" for form, text in complaints.items() if text]
    assert not wrong, f"{len(wrong)} of {len(complaints)} forms are wrong:\n" + "\n".join(wrong)

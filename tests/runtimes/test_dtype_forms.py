"""Every form of dtype_forms.py on the second runtime (compiler: naga) and driver.

Dawn with the default driver meets these forms, and more, in the tests of the operators.
"""

import pytest
from settings import report


# SwiftShader takes long to compile them.
@pytest.mark.sampled("wgpu-native-2", "SwiftShader-1")
@pytest.mark.parametrize("samples", ["1", "2"])
@pytest.mark.parametrize("setting", ["wgpu-native", "SwiftShader"])
def test_every_form(setting, samples):
    complaints = report("dtype_forms.py", setting, samples)
    assert len(complaints) > 400
    wrong = [f"{form}: {text}" for form, text in complaints.items() if text]
    assert not wrong, f"{len(wrong)} of {len(complaints)} forms are wrong:\n" + "\n".join(wrong)

"""Every form of dtype_forms.py on the second runtime (compiler: naga) and driver.

Dawn with the default driver meets these forms, and more, in the tests of the operators.
"""

import pytest
from settings import report


# SwiftShader takes long to compile them: `make test` runs one form of three. A form is an operator
# with a dtype, and next to each other are the eight dtypes of an operator.
@pytest.mark.sampled("wgpu-native-1-1", "SwiftShader-1-3")
@pytest.mark.parametrize(("samples", "step"), [("1", "3"), ("1", "1"), ("2", "1")])
@pytest.mark.parametrize("setting", ["wgpu-native", "SwiftShader"])
def test_every_form(setting, samples, step):
    complaints = report("dtype_forms.py", setting, samples, step)
    assert len(complaints) > 400 // int(step)
    wrong = [f"{form}: {text}" for form, text in complaints.items() if text]
    assert not wrong, f"{len(wrong)} of {len(complaints)} forms are wrong:\n" + "\n".join(wrong)

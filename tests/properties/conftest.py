import os

from hypothesis import HealthCheck, settings

# Examples are few, because each may build pipelines; in CI they are the same on every run.
settings.register_profile(
    "device",
    deadline=None,
    max_examples=60,
    derandomize=os.environ.get("CI") == "true",
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("device")

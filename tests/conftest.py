"""What several files of tests need, one cluster among it, and how many examples of Hypothesis a run tries.

`quick`, the profile of `make test`, tries 10 of each property, the same ones every time; `night` tries 200 new ones and
is chosen by HYPOTHESIS_PROFILE=night, as `make test-slow` does. A property that looks for what is rare in cheap
arithmetic says with `examples` how many it needs at least.
"""

import os
import signal

import pytest
from hypothesis import settings

PROFILES = {
    "quick": settings(max_examples=10, deadline=None, derandomize=True),
    "night": settings(max_examples=200, deadline=None, print_blob=True),
}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
CHOSEN = PROFILES[PROFILE]
settings.register_profile(PROFILE, CHOSEN)
settings.load_profile(PROFILE)


def examples(least: int) -> settings:
    """No fewer than these, whatever the profile."""
    return settings(CHOSEN, max_examples=max(least, CHOSEN.max_examples))


@pytest.fixture
def heeds_ctrl_c():
    """SIGINT interrupts this process and those it starts, also where tests run in the background of a script: there it
    is ignored, and whoever is started inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def cluster():
    """Dask's workers, in this process: one cluster for all tests that lose none of it."""
    distributed = pytest.importorskip("distributed")
    how = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=3, **how) as workers:
        yield workers


@pytest.fixture(scope="module")
def client(cluster):
    """Whoever asks for one finds this client."""
    with pytest.importorskip("distributed").Client(cluster) as made:
        yield made

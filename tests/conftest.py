"""What several files of tests need."""

import signal

import pytest


@pytest.fixture
def heeds_ctrl_c():
    """SIGINT interrupts this process and those it starts, also where tests run in the background of a script: there it
    is ignored, and whoever is started inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

"""A State without a daemon, for tests of parts of gradsieve.torch. Not a test."""
import unittest.mock

import gradsieve.torch


def bare_state(fallback=None):
    """A State that has no model, no job and no thread: what its waiter does with a bucket."""
    state = object.__new__(gradsieve.torch.State)
    state._fallback, state._timeout, state._group, state.job, state.error = fallback, 1.0, "", unittest.mock.Mock(), None
    state._lost_step = state._prober = None
    return state

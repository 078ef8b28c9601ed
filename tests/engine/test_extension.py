"""An extension leaves to the policy inside whatever it does not override."""

from __future__ import annotations

import inspect
from typing import Any
from unittest.mock import Mock, sentinel

import pytest

from semistream.engine.extension import Extension
from semistream.engine.policy import Policy

OWN = {"make_front_stage", "iteration_over"}  # a policy calls these on itself; the run does not
PUBLIC = {name: value for name, value in vars(Policy).items() if name[0] != "_"}
METHODS = [name for name, value in PUBLIC.items() if inspect.isfunction(value)]
VALUES = [name for name in PUBLIC if name not in METHODS]


def test_both_work_on_the_same_parts() -> None:
    inside = Mock()
    extension = Extension(inside)
    for part in ("join", "context", "intake", "output", "admission"):
        assert getattr(extension, part) is getattr(inside, part)


@pytest.mark.parametrize("name", sorted({*METHODS} - OWN))
def test_calls_go_to_the_policy_inside(name: str) -> None:
    inside = Mock()
    method = getattr(Extension(inside), name)
    arguments = [getattr(sentinel, name) for name in inspect.signature(method).parameters]
    returned = method(*arguments)
    getattr(inside, name).assert_called_once_with(*arguments)
    if inspect.signature(method).return_annotation != "None":
        assert returned is getattr(inside, name).return_value


@pytest.mark.parametrize("name", sorted(VALUES))
def test_its_state_is_that_of_the_policy_inside(name: str) -> None:
    inside = Mock()
    setattr(inside, name, getattr(sentinel, name))
    assert getattr(Extension(inside), name) is getattr(sentinel, name)


def test_what_a_subclass_overrides_is_its_own() -> None:
    class Shy(Extension):
        def memory(self) -> dict[str, int]:
            return {**super().memory(), "more": 5}

        @property
        def busy(self) -> bool:
            return True

    inside: Any = Mock(busy=False, held=3)
    inside.memory.return_value = {"window": 7}
    extension = Shy(inside)
    assert extension.memory() == {"window": 7, "more": 5}
    assert extension.busy
    assert extension.held == 3

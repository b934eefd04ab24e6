"""What tokens cost: exactly, and each token once."""

import doctest
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import Usage, prices
from kernel.prices import Prices

MONEY = st.decimals(0, 10_000, places=6)
TOKENS = st.integers(0, 9) | st.integers(0, 2**70)


def test_the_example_is_true():
    """The example in the docstring gives what it says."""
    assert doctest.testmod(prices).failed == 0


@given(MONEY, MONEY, MONEY, MONEY, TOKENS, TOKENS, TOKENS, TOKENS)
def test_each_token_is_paid_once_and_exactly(a: Any, b: Any, c: Any, d: Any, fresh: int, read: int, write: int, out: int):
    """Cached tokens are paid at their own price and not as input too, and nothing is rounded, however much it is."""
    usage = Usage(fresh + read + write, out, read, write, out)
    cost = Prices(input=a, output=b, cache_read=c, cache_write=d).cost(usage)
    sum_of_parts = fresh * Fraction(a) + out * Fraction(b) + read * Fraction(c) + write * Fraction(d)
    assert Fraction(cost) == sum_of_parts / 1_000_000


def test_without_prices_of_their_own_cached_tokens_are_input():
    """A price for caches that is not given is the one of input; one that is 0 is 0."""
    usage = Usage(input=1_000_000, cache_read=400_000, cache_write=100_000)
    assert Prices(input=2, output=0).cost(usage) == 2
    assert Prices(input=2, output=0, cache_read=0, cache_write=0).cost(usage) == 1


def test_reasoning_is_paid_as_output_and_not_twice():
    """Reasoning is a part of output."""
    assert Prices(input=0, output=10).cost(Usage(output=1_000_000, reasoning=700_000)) == 10


@pytest.mark.parametrize("given", [0.075, "0.075", Decimal("0.075")], ids=repr)
def test_a_price_is_what_was_typed(given: Any):
    """Also a float is taken for its digits."""
    assert Prices(input=given, output=1).input == Decimal("0.075")


@pytest.mark.parametrize("name", ["input", "output", "cache_read", "cache_write"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), ("NaN", ValueError), ("inf", ValueError), ("free", TypeError), (True, TypeError), ([], TypeError)],
    ids=repr,
)
def test_what_is_no_price_is_refused_by_its_name(name: str, value: Any, error: type[Exception]):
    """A price is a finite number that is not negative."""
    with pytest.raises(error, match=f"Prices.{name} must be"):
        Prices(**{"input": 1, "output": 1, name: value})


def test_input_and_output_must_be_given():
    """None is a price for caches only."""
    with pytest.raises(TypeError, match=r"Prices\.input must be"):
        Prices(input=None, output=1)  # type: ignore[arg-type]


def test_an_impossible_usage_is_refused():
    """More cached tokens than input are a fault of the model's adapter, and not a negative sum."""
    with pytest.raises(ValueError, match="parts of input"):
        Prices(input=1, output=1).cost(Usage(input=5, cache_read=4, cache_write=2))


def test_only_a_usage_costs():
    """None, which a message without a usage has, is told by its name."""
    with pytest.raises(TypeError, match="usage must be a Usage, not None"):
        Prices(input=1, output=1).cost(None)  # type: ignore[arg-type]

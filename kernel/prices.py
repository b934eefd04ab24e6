"""What tokens cost, in exact decimals.

There is no table of vendors' prices here, and there will be none: they change by the month, and an old table would be
wrong without saying so. Who pays knows what they pay.
"""

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, localcontext
from typing import Any, Final, final

from attrs import field, frozen

from kernel.messages import Usage

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation])
"""Money is never rounded here: only additions and multiplications are done, and they are exact."""


def _decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return value
    try:
        return Decimal(str(value))  # of a float the digits that were typed, not the ones that it stands for
    except InvalidOperation:
        return value


def _decimal_or_none(value: Any) -> Any:
    return None if value is None else _decimal(value)


def _price(instance: Any, attribute: Any, value: Any) -> None:
    if value is None and attribute.default is None:
        return
    if not isinstance(value, Decimal):
        raise TypeError(f"Prices.{attribute.name} must be a number, or text like '0.30', not {value!r}")
    if not value.is_finite() or value < 0:
        raise ValueError(f"Prices.{attribute.name} must be finite and not negative, not {value}")


@final
@frozen(kw_only=True)
class Prices:
    """Money for a million tokens, in whatever currency. Takes a number or text like `"0.30"`; keeps a `Decimal`.

    `cache_read` and `cache_write` are for the tokens of a request that were read from a cache or written into one; None:
    they cost what other input costs. Reasoning is paid as output.

    >>> Prices(input=3, output=15, cache_read="0.30").cost(Usage(input=1_000_000, output=1_000, cache_read=900_000))
    Decimal('0.585')
    """

    input: Decimal = field(converter=_decimal, validator=_price)
    output: Decimal = field(converter=_decimal, validator=_price)
    cache_read: Decimal | None = field(default=None, converter=_decimal_or_none, validator=_price)
    cache_write: Decimal | None = field(default=None, converter=_decimal_or_none, validator=_price)

    def cost(self, usage: Usage) -> Decimal:
        """What *usage* costs, exactly. ValueError when more was read from caches and written into them than was sent."""
        if not isinstance(usage, Usage):
            raise TypeError(f"usage must be a Usage, not {usage!r}")
        fresh = usage.input - usage.cache_read - usage.cache_write
        if fresh < 0:
            raise ValueError(
                f"{usage} can't be: cache_read and cache_write are parts of input. The model that reported it must add them"
            )
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        with localcontext(_EXACT):
            whole = fresh * self.input + usage.cache_read * read + usage.cache_write * write + usage.output * self.output
            cost = whole.scaleb(-6)
            return cost.quantize(Decimal(1)) if cost == cost.to_integral_value() else cost.normalize()

# SPDX-License-Identifier: Apache-2.0
"""Filters for values that may be absent, with their units."""

from django import template
from django.template.defaultfilters import filesizeformat

register = template.Library()

_NONE = "-"


@register.filter
def percent(ratio: float | None) -> str:
    """Return a ratio in percent."""
    # An absent variable of a template is an empty text.
    return _NONE if ratio in (None, "") else f"{100 * ratio:.1f} %"


@register.filter
def milliseconds(value: float | None) -> str:
    """Return microseconds in milliseconds."""
    return _NONE if value in (None, "") else f"{value / 1000:.3g} ms"


@register.filter
def size(value: int | None) -> str:
    """Return a number of bytes with a unit."""
    return _NONE if value in (None, "") else str(filesizeformat(value))


@register.filter
def number(value: float) -> str:
    """Return a number without needless digits."""
    return f"{value:g}"

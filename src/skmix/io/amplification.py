"""Default scales of FCS channels, decided by how an instrument amplified and stored the values.

The first rule that a channel meets decides, for all files of a study together:

=================================================================  ======================================
channel                                                            scale
=================================================================  ======================================
floats, no fluorescence or mass channel beyond ±20                 none: they were transformed before
mass cytometry                                                     arcsinh(x / 5)
logarithmic amplifier: ``$PnE`` f1,f2 with f1 > 0 and integers,    arcsinh(x / (150 · top / 2^18)), where
or floats from f2 to f2 · 10^f1, or floats from 1 to 10⁴ with a    the top is f2 · 10^f1: the cofactor is
range of at most 2^14                                              5.72 for four decades from 1
scatter                                                            linear
whole numbers with a range of at most 4096                         linear
others                                                             arcsinh(x / (150 · top / 2^18))
=================================================================  ======================================

The cofactor of 150 is usual for instruments with a top of the range of 2^18. Others count the same light in
other units, so it grows with the top, as the logicle scale does with T: 600 for 2^20, 2400 for 2^22, 9600
for 2^24. Tops are rounded to powers of two. Floats whose range is below 2^18 keep 150, because many programs
write the largest value as the range. Whole numbers of at most 12 bits from a linear amplifier, or channel
numbers that a program exported, have few levels: a logarithm would stretch the lowest ones.

Above their first decade, log-amplified values are on their logarithm, within 0.04 decades. The first decade
is nearly linear, because it holds noise: cells without fluorescence pile up at the lowest value, compensation
moves them to both sides of zero, and a logarithm would make several populations of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LINEAR = "linear"
MASS_SCALE = "arcsinh:5"
# Cofactor of fluorescence on instruments with this top of the range, and the length of that scale.
_COFACTOR, _TOP = 150.0, float(1 << 18)
LENGTH = float(np.arcsinh(_TOP / _COFACTOR))
"""Length of the default scale from 0 to the top of the range; linear channels get the same."""
# Largest absolute value on any usual scale.
_TRANSFORMED = 20.0
# Largest range of whole numbers that are linear: 12 bits.
_FEW_LEVELS = 4096.0
# Scale and range of logarithmic channels that a program wrote as linear floats.
_DECADES = (1.0, 1e4, float(1 << 14))
# Relative rounding error of single precision, with a margin.
_ROUNDING = 1e-5


class Recorded(NamedTuple):
    """How a channel was recorded; values are on the linear scale, after the gain."""

    is_mass: bool
    is_scatter: bool
    is_integer: bool  # as stored
    decades: float  # f1 and
    bottom: float  # f2 of $PnE; 0 decades are linear
    top: float  # of the range
    gain: float  # values were divided by it
    low: float  # smallest and
    high: float  # largest value in some events
    whole: bool  # whether all these are whole numbers, before the gain


def amplifier(channel: Recorded) -> tuple[object, ...]:
    """Return what files must agree in to have a scale in common; gains and linear ranges may differ."""
    if channel.decades == 0.0:
        return channel.is_mass, 0.0
    return channel.is_mass, channel.decades, channel.bottom * channel.gain, channel.is_integer


def merged(parts: Sequence[Recorded]) -> Recorded:
    """Return one record of a channel in several files, which were amplified alike."""
    return parts[0]._replace(
        is_integer=all(part.is_integer for part in parts),
        bottom=min(part.bottom for part in parts),
        top=max(part.top for part in parts),
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        whole=all(part.whole for part in parts),
    )


def are_transformed(channels: Sequence[Recorded]) -> bool:
    """Return whether the values of all channels of a study have been transformed before."""
    measured = [channel for channel in channels if not channel.is_scatter]
    small = all(
        not channel.is_integer and max(-channel.low, channel.high) <= _TRANSFORMED for channel in measured
    )
    return bool(measured) and small and not all(channel.whole for channel in measured)


def usual_scale(channel: Recorded) -> tuple[str, str]:
    """Return the scale of a channel whose values have not been transformed, and the reason in words."""
    if channel.is_mass:
        return MASS_SCALE, "mass cytometry"
    top, is_logarithmic = channel.top, channel.decades > 0.0
    if not channel.is_integer:
        bottom, most, widest = channel.bottom, channel.bottom * 10.0**channel.decades, np.inf
        if channel.decades == 0.0:
            bottom, most, widest = _DECADES
        inside = bottom * (1.0 - _ROUNDING) <= channel.low and channel.high <= most * (1.0 + _ROUNDING)
        if inside and top * channel.gain <= widest and not channel.whole:
            top, is_logarithmic = most, True
        elif channel.is_scatter:
            is_logarithmic = False
    if is_logarithmic:
        return _arcsinh(_COFACTOR * top / _TOP), "log-amplified"
    if channel.is_scatter:
        return LINEAR, "scatter"
    top *= channel.gain
    if channel.whole and max(top, channel.high * channel.gain) <= _FEW_LEVELS:
        return LINEAR, "whole numbers of at most 12 bits"
    top = 2.0 ** round(np.log2(top))
    top = top if channel.is_integer else max(top, _TOP)
    return _arcsinh(_COFACTOR * top / _TOP / channel.gain), "fluorescence"


def _arcsinh(cofactor: float) -> str:
    return f"arcsinh:{float(f'{cofactor:.3g}')!r}".removesuffix(".0")

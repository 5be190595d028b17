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

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed
from .fcs import Channel, FcsFile
from .recipe import BY_CHANNEL, Preparation

_LINEAR = "linear"
_MASS_SCALE = "arcsinh:5"
# Cofactor of fluorescence on instruments with this top of the range.
_COFACTOR, _TOP = 150.0, float(1 << 18)
# Length of that scale from 0 to the top of the range; linear channels get the same.
_LENGTH = float(np.arcsinh(_TOP / _COFACTOR))
# Largest absolute value on any usual scale.
_TRANSFORMED = 20.0
# Largest range of whole numbers that are linear: 12 bits.
_FEW_LEVELS = 4096.0
# Scale and range of logarithmic channels that a program wrote as linear floats.
_BOTTOM_OF_FLOATS, _TOP_OF_FLOATS, _RANGE_OF_FLOATS = 1.0, 1e4, float(1 << 14)
# Relative rounding error of single precision, with a margin.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Recorded:
    """How a channel was recorded in one file, or in several."""

    channel: Channel
    is_mass: bool
    low: float  # smallest and
    high: float  # largest of some values on the linear scale
    whole: bool  # whether all these are whole numbers, before the gain

    @classmethod
    def in_file(cls, file: FcsFile, index: int) -> Recorded:
        """The record of a channel of a file, given by index."""
        return cls(file.channels[index], file.is_mass, *file.extremes[index])

    @property
    def amplifier(self) -> tuple[object, ...]:
        """What files must agree in to have a scale in common; gains and linear ranges may differ."""
        channel = self.channel
        if channel.decades == 0.0:
            return self.is_mass, 0.0
        return self.is_mass, channel.decades, channel.bottom * channel.gain, channel.is_integer

    def __str__(self) -> str:
        stored = "integers" if self.channel.is_integer else "floats"
        if self.is_mass:
            return f"{stored} of mass cytometry"
        if self.channel.decades:
            return f"{stored}, {self.channel.decades:g} decades from {self.channel.bottom:g}"
        return f"linear {stored}"


def usual_scale(files: Sequence[FcsFile], columns: Sequence[Any]) -> tuple[Preparation, str]:
    """The default scale of channels of several files, as a preparation, and a sentence about it."""
    cells = [Recorded.in_file(file, index) for file in files for index in file.find(file.markers)]
    if _are_transformed(cells):
        note = "No value is beyond ±20, so they have been transformed before: they are used as they are."
        return {"transform": "none"}, note
    scales: dict[str, str] = {}
    linear: dict[str, float] = {}
    names_of: dict[tuple[str, str], list[str]] = {}
    for name in columns:
        recorded = _in_all(files, name)
        scale, reason = _scale_of(recorded)
        names_of.setdefault((scale, reason), []).append(name)
        if scale == _LINEAR:
            # The top of their range is as far from 0 as on the scale of the others.
            linear[name] = recorded.channel.top / _LENGTH
        else:
            scales[name] = scale
    note = _in_words(names_of)
    if len(set(scales.values())) > 1:
        return {"transform": BY_CHANNEL, "scales": scales, "linear": linear}, note
    return {"transform": next(iter(scales.values()), "arcsinh:150"), "linear": linear}, note


def _are_transformed(channels: Sequence[Recorded]) -> bool:
    """Whether the values of all channels of a study have been transformed before."""
    measured = [recorded for recorded in channels if not recorded.channel.is_scatter]
    are_small = all(
        not recorded.channel.is_integer and max(-recorded.low, recorded.high) <= _TRANSFORMED
        for recorded in measured
    )
    return bool(measured) and are_small and not all(recorded.whole for recorded in measured)


def _in_all(files: Sequence[FcsFile], name: str) -> Recorded:
    """One record of a channel in several files, which must have amplified it alike."""
    parts = [Recorded.in_file(file, file.find([name])[0]) for file in files]
    for file, part in zip(files, parts, strict=True):
        if part.amplifier != parts[0].amplifier:
            raise ArgumentError(
                f"Files disagree: channel {name!r} has {parts[0]} in {files[0].path} and {part} in "
                f"{file.path} ($PnE and $DATATYPE). If their values mean the same, choose one scale for both "
                "with ",
                Argument("transform", "arcsinh:5"),
                " or another.",
            )
    channels = [part.channel for part in parts]
    channel = replace(
        channels[0],
        is_integer=all(channel.is_integer for channel in channels),
        bottom=min(channel.bottom for channel in channels),
        top=max(channel.top for channel in channels),
    )
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    return Recorded(channel, parts[0].is_mass, low, high, all(part.whole for part in parts))


def _scale_of(recorded: Recorded) -> tuple[str, str]:
    """The scale of a channel whose values have not been transformed, and the reason in words."""
    if recorded.is_mass:
        return _MASS_SCALE, "mass cytometry"
    channel, top = recorded.channel, recorded.channel.top
    is_logarithmic = channel.decades > 0.0
    if not channel.is_integer:
        bottom, highest, widest = channel.bottom, channel.bottom * 10.0**channel.decades, np.inf
        if channel.decades == 0.0:
            bottom, highest, widest = _BOTTOM_OF_FLOATS, _TOP_OF_FLOATS, _RANGE_OF_FLOATS
        is_inside = bottom * (1.0 - _ROUNDING) <= recorded.low and recorded.high <= highest * (
            1.0 + _ROUNDING
        )
        if is_inside and top * channel.gain <= widest and not recorded.whole:
            is_logarithmic, top = True, highest
        elif channel.is_scatter:
            is_logarithmic = False
    if is_logarithmic:
        return _arcsinh(_COFACTOR * top / _TOP), "log-amplified"
    if channel.is_scatter:
        return _LINEAR, "scatter"
    top *= channel.gain
    if recorded.whole and max(top, recorded.high * channel.gain) <= _FEW_LEVELS:
        return _LINEAR, "whole numbers of at most 12 bits"
    top = 2.0 ** round(np.log2(top))
    top = top if channel.is_integer else max(top, _TOP)
    return _arcsinh(_COFACTOR * top / _TOP / channel.gain), "fluorescence"


def _arcsinh(cofactor: float) -> str:
    return f"arcsinh:{float(f'{cofactor:.3g}')!r}".removesuffix(".0")


def _in_words(names_of: dict[tuple[str, str], list[str]]) -> str:
    """A sentence about the scales, given the features by scale and reason."""

    def formula(scale: str) -> str:
        return re.sub(r"arcsinh:(.+)", r"arcsinh(x / \1)", scale)

    (scale, reason), *others = sorted(names_of, key=lambda choice: choice[0] == _LINEAR)
    if scale != _LINEAR and all(other == _LINEAR for other, _ in others):
        linear = [name for choice in others for name in names_of[choice]]
        rest = f" ({listed(linear)} linear)" if linear else ""
        return f"{reason.capitalize()} data: values are shown as {formula(scale)}{rest}."
    parts = [f"{listed(names)}: {formula(scale)} ({reason})" for (scale, reason), names in names_of.items()]
    return f"Values are shown as their channels were recorded. {'; '.join(parts)}."

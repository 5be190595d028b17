"""Update rules: from sufficient statistics to the next parameters, without access to rows."""

from __future__ import annotations

from .likelihood import Likelihood
from .variational import Variational

UpdateRule = Likelihood | Variational

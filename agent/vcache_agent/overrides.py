# SPDX-License-Identifier: Apache-2.0
"""What holds of an instance instead of what its flavor says."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_vcache.extra_specs import ExtraSpecs, Mode


@dataclasses.dataclass(frozen=True)
class Override:
    """What was set of one instance; None: what its flavor says.

    The fields are :data:`nova_vcache.extra_specs.OVERRIDABLE`.
    """

    weight: int | None = None
    slo_flush_ms: float | None = None
    slo_read_us: float | None = None
    slo_iops: float | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Return what was set, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value is not None}


NONE = Override()


@dataclasses.dataclass(frozen=True)
class Adjust:
    """Makes of a flavor's specs what holds.

    :param overrides: by UUID of the domain
    :param draining: nothing is to be in caches that no origin has
    """

    overrides: Mapping[str, Override] = dataclasses.field(default_factory=dict)
    draining: bool = False

    def specs(self, domain: str, flavor: ExtraSpecs) -> ExtraSpecs:
        """Return what holds of an instance."""
        found = dataclasses.replace(flavor, **self.overrides.get(domain, NONE).given)
        if self.draining and found.mode is Mode.WRITEBACK:
            return dataclasses.replace(found, mode=Mode.WRITETHROUGH)
        return found

# SPDX-License-Identifier: Apache-2.0
"""Values that an operator has set for an instance, which override its flavor."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nova_vcache.extra_specs import ExtraSpecs, Mode


@dataclasses.dataclass(frozen=True)
class Override:
    """The overrides of one instance; None: the value of the flavor.

    The fields are :data:`nova_vcache.extra_specs.OVERRIDABLE`; their units are those of
    the extra specs.
    """

    weight: int | None = None
    slo_flush_ms: float | None = None
    slo_read_us: float | None = None
    slo_iops: float | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The values that are set, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value is not None}


NONE = Override()


@dataclasses.dataclass(frozen=True)
class Adjust:
    """Applies overrides to a flavor's extra specs.

    :param overrides: the overrides by UUID of the domain
    :param draining: no cache of the host may have dirty data, so writeback becomes
        writethrough
    """

    overrides: Mapping[str, Override] = dataclasses.field(default_factory=dict)
    draining: bool = False

    def specs(self, domain: str, flavor: ExtraSpecs) -> ExtraSpecs:
        """Return the effective extra specs of an instance.

        :param domain: UUID of the domain
        :param flavor: extra specs of the flavor
        """
        given = self.overrides.get(domain, NONE).given if self.overrides else {}
        found = dataclasses.replace(flavor, **given) if given else flavor
        if self.draining and found.mode is Mode.WRITEBACK:
            return dataclasses.replace(found, mode=Mode.WRITETHROUGH)
        return found

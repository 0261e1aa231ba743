# SPDX-License-Identifier: Apache-2.0
"""The mixes of traces, the sizes of the caches, and the schedule of the tenants."""

#: Mixes of real traces, by name. Each trace is a tenant.
MIXES = {
    "all": ("cloudphysics_sample", "arc_P3", "arc_P6", "lirs_multi3", "opencas_ycsb_rocksdb",
            "mqsim_wsrch"),
    "desktops": ("arc_P3", "arc_P6", "cloudphysics_sample"),
    "databases": ("opencas_ycsb_rocksdb", "mqsim_tpcc", "lirs_2_pools", "arc_P6"),
    "loops": ("lirs_loop", "lirs_multi1", "lirs_multi2", "lirs_2_pools"),
    "small-and-large": ("lirs_multi1", "lirs_multi2", "arc_P6", "mqsim_wsrch"),
    "servers": ("cloudphysics_sample", "opencas_ycsb_rocksdb", "arc_P3", "lirs_multi3"),
}
#: Sizes of the cache as parts of all blocks of a mix.
SIZES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
GRAINS = 256

#: Accesses in a control period of the online runs.
PERIOD = 20_000
#: Mixes that the constants were chosen on, and those that only report.
CHOSEN_ON = ("all", "loops")
SEEDS = (1, 2, 3)

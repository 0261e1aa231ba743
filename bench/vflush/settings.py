# SPDX-License-Identifier: Apache-2.0
"""All parameters of the experiments. The JSON contains them too."""

#: Writes of VM2 between two fsyncs, as in the paper; 0: never.
NEVER = 0
INTERVALS = (32, 16, 8, 4, 2, 1)

#: The SSD is the Jasmine drive of firmware/host/drive.c. Its size is half of the board's 64 GB, so
#: that the map with 4 bytes per block is in memory beside a buffer of 32 MiB: 67.9 MB.
HARDWARE = {
    "blocks": 2048,  # per bank, 2 MiB each
    "buffer_blocks": 8192,  # 4 KiB each
    "file_blocks": 1 << 20,  # written by a VM: twice its 2 GB of memory
    "journal_blocks": 32768,  # 128 MiB, ext4's default for such a disk
    "link_mb_s": 300,  # SATA 3 Gb/s
    "command_us": 10,  # of the link, per command
    "software_us": 50,  # guest, virtio and host, per request
    "queue_depth": 32,
    "vms": 3,  # images on the SSD; the experiment selects how many run
}
WARM_MS = 5000
RUN_MS = 20000
SAMPLE_MS = 100

#: Name, personality of the firmware, parameters of a run. "hold": a FLUSH delays all later
#: commands, like the paper's interface logic. Both of the paper's systems do this. The others are
#: for comparison: an interface like NVMe's, which executes commands out of order.
SYSTEMS = {
    "baseline": ("baseline", "hold=1"),
    "tagged": ("tagged", "hold=1 tags=1"),
    # What tags add to map logging, and to one namespace for each VM and the host.
    "logged": ("tagged", "hold=1"),
    "namespaces": ("tagged", "hold=1 namespaces=1"),
    "baseline_overlapping": ("baseline", ""),
    "tagged_overlapping": ("tagged", "tags=1"),
    "baseline_write_through": ("baseline", "hold=1 write_through=1"),
}
#: Systems that differ in what a flush covers, from the paper's Baseline to its tags. Their figures
#: are medians of these seeds; those of the other systems are of the first seed.
ATTRIBUTION = ("baseline", "logged", "namespaces", "tagged")
SEEDS = (1, 2, 3)
#: By how many per cent the mean flush with tags must be shorter than with namespaces.
NAMESPACES_AIM_PCT = 30.0
#: The VMs of figure 9.
MIXES = (
    ("varmail",), ("tpcc",), ("fileserver",),
    ("fileserver", "varmail"), ("fileserver", "tpcc"), ("varmail", "tpcc"),
    ("varmail", "varmail"), ("tpcc", "tpcc"),
    ("fileserver", "varmail", "tpcc"),
)

#: Figures in the text of the paper. Those in its plots cannot be read more precisely.
PUBLISHED = {
    "flush_latency_reduction_pct": 52.0,
    "flushed_data_reduction_pct": 50.2,
    "map_pages_reduction_pct": 75.3,
    "neighbour_loss_pct_max": 14.9,
    "baseline_neighbour_loss_pct_max": 34.8,
    "baseline_vm2_loss_pct_max": 74.7,
    "vm2_loss_pct_max": 50.2,
    "entries_reduction_pct": 32.0,
}
AIMS = {
    "tagged": {"flush_latency_reduction_pct": 52.0, "flushed_data_reduction_pct": 50.0,
               "map_pages_reduction_pct": 75.0, "neighbour_loss_pct_max": 14.9},
    "full": {"flush_latency_reduction_pct": 80.0, "flushed_data_reduction_pct": 80.0,
             "map_pages_reduction_pct": 90.0, "neighbour_loss_pct_max": 2.0},
}

#: The second part. All sizes are smaller, since a box runs at a hundredth of the speed. A pause
#: follows each write: host, loads and drive share one processor, and the loads must not compete
#: for it.
BOX = {
    "drive_mb": 768,
    "image_mb": 192,
    "think_us": 1000,
    "ramp_ms": 500,
    "time_ms": 5000,  # contains one write-out of the dirty data in the host's memory
    "tail_ms": 100,
    "buffer_mb": 128,  # of dm-vcache, its default
}
#: Options of vcache-ssd. A FLUSH delays later commands, as above.
BOX_DRIVE = ("--nand", "jasmine", "--flush", "exclusive")
#: Personality of the firmware, and whether dm-vcache is used.
BOX_SYSTEMS = {
    "baseline": ("baseline", False),
    "full": ("tagged", True),
    "fua": ("baseline", True),
}

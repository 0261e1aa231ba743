# SPDX-License-Identifier: Apache-2.0
"""All parameters of the experiments. The JSON contains them too."""

#: Writes of VM2 between two fsyncs, as in the paper; 0: never.
NEVER = 0
INTERVALS = (32, 16, 8, 4, 2, 1)

#: The SSD is the Jasmine set of firmware/host/drive.c. Half of the board's 64 GB,
#: so that the map of 4 bytes a block is in memory beside a buffer of 32 MiB: 67.9 MB.
HARDWARE = {
    "blocks": 2048,  # of a bank, 2 MiB each
    "buffer_blocks": 8192,  # of 4 KiB
    "file_blocks": 1 << 20,  # that a VM writes: twice its 2 GB of memory
    "journal_blocks": 32768,  # 128 MiB, ext4's default for such a disk
    "link_mb_s": 300,  # SATA 3 Gb/s
    "command_us": 10,  # of the link, each command
    "software_us": 50,  # guest, virtio and host, each request
    "queue_depth": 32,
    "vms": 3,  # images on the SSD; as many run as an experiment says
}
WARM_MS = 5000
RUN_MS = 20000
SAMPLE_MS = 100

#: Name, personality of the firmware, words of a run. "hold": a FLUSH holds back
#: later commands, as the paper's interface logic does; the paper's two systems
#: both do. The others are for comparison: an interface like NVMe's, where
#: commands overtake each other.
SYSTEMS = {
    "baseline": ("baseline", "hold=1"),
    "tagged": ("tagged", "hold=1 tags=1"),
    "baseline_overlapping": ("baseline", ""),
    "tagged_overlapping": ("tagged", "tags=1"),
    "baseline_write_through": ("baseline", "hold=1 write_through=1"),
}
#: Of figure 9.
MIXES = (
    ("varmail",), ("tpcc",), ("fileserver",),
    ("fileserver", "varmail"), ("fileserver", "tpcc"), ("varmail", "tpcc"),
    ("varmail", "varmail"), ("tpcc", "tpcc"),
    ("fileserver", "varmail", "tpcc"),
)

#: What the paper says in words; its figures are read no more exactly than that.
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

#: The second part. Less of everything, since a box runs at a hundredth of the
#: speed; a pause after each write, since all of host, loads and drive share its
#: one processor, and the loads must not compete for that.
BOX = {
    "drive_mb": 768,
    "image_mb": 192,
    "think_us": 1000,
    "ramp_ms": 500,
    "time_ms": 5000,  # each has one write-out of what is dirty in the host's memory
    "tail_ms": 100,
    "buffer_mb": 128,  # of dm-vcache, its default
}
#: Options of vcache-ssd. A FLUSH holds back what follows, as above.
BOX_DRIVE = ("--nand", "jasmine", "--flush", "exclusive")
#: Firmware, and whether dm-vcache is on top.
BOX_SYSTEMS = {
    "baseline": ("baseline", False),
    "full": ("tagged", True),
    "fua": ("baseline", True),
}

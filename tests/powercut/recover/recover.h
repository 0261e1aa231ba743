/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of a pool from its cache device after a power cut: the sources of native/core,
 * on a device that is assembled from the log of a recording.
 */
#ifndef POWERCUT_RECOVER_H
#define POWERCUT_RECOVER_H

#include "../../../native/core/recover.h"

#define SECTOR		512U

/**
 * struct device - the cache device after a cut
 * @log: the log with the sectors
 * @logged: its size in sectors
 * @sectors: size of the device
 * @image: for each of them the sector of the log; 0: zeroes; from @logged on
 *	one of @extra
 * @extra: sectors written by the recovery
 * @room: their maximum number
 * @used: number of them in use
 * @writes: requests that the recovery has made
 * @write: their first sectors and sizes
 */
struct device {
	const u8 *log;
	u64 logged;
	u64 sectors;
	int64_t *image;
	u8 *extra;
	u64 room;
	u64 used;
	u32 writes;
	struct {
		u64 sector;
		u32 count;
	} write[4096];
};

/**
 * struct outcome - results of the recovery
 * @errors: chunks that could not be read, and entries refused
 * @bad_blocks: invalid blocks of open chunks
 * @chunks: number of chunks with data of the volume
 */
struct outcome {
	u64 errors;
	u64 bad_blocks;
	u32 chunks;
};

void device_store(struct device *d, struct vcache_store *st);
int recover(struct device *d, u32 volume, int64_t *map, u64 origin,
	    struct outcome *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pool would find on its cache device after a power cut: the sources
 * of native/core, on a device that is put together from the log of a recording.
 */
#ifndef POWERCUT_RECOVER_H
#define POWERCUT_RECOVER_H

#include "../../../native/core/recover.h"

#define SECTOR		512U

/**
 * struct device - the cache device after a cut
 * @log: all of the log, in which the sectors are
 * @logged: sectors of it
 * @sectors: of the device
 * @image: for each of them the sector of the log; 0: zeroes; from @logged on
 *	one of @extra
 * @extra: what the recovery writes
 * @room: sectors in it
 * @used: of these
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
 * struct outcome - how the recovery went
 * @errors: chunks that could not be read, and entries refused
 * @bad_blocks: blocks of open chunks that were not whole
 * @chunks: that hold something of the volume
 */
struct outcome {
	u64 errors;
	u64 bad_blocks;
	u32 chunks;
};

void device_store(struct device *d, struct vc_store *st);
int recover(struct device *d, u32 volume, int64_t *map, u64 origin,
	    struct outcome *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on the NAND; doc/source/reference/nand.rst specifies it.
 *
 * Every page has the spare bytes of struct vs_oob. Data pages hold blocks of
 * the host. Metadata pages begin with struct vs_meta and are one of
 *
 *	map	a page full of map entries: slot address of LPN index * n ...
 *	root	directory of the map pages; commits the checkpoint it belongs to
 *	log	a tag's log area since that checkpoint, always from its begin:
 *		of one tag's pages the newest is enough
 *
 * Each page of the root and of a log is there twice, in two erase blocks.
 *
 * Numbers have the processor's order, which is little-endian in every port.
 * All checksums are CRC32C, taken with the checksum's own field as 0.
 */
#ifndef VCACHE_FW_LAYOUT_H
#define VCACHE_FW_LAYOUT_H

#include <stdint.h>

#define VS_MAGIC 0x5656u
/* To be increased with every change of what is described here. */
#define VS_FORMAT 3u
#define VS_NONE UINT32_MAX
/* In the map: the place of the block, and so its content, is lost. */
#define VS_LOST (UINT32_MAX - 1)
/* In a log entry: it is a TRIM of as many blocks as the other bits say. */
#define VS_TRIM 0x80000000u
/* Of a data page: it needs no log page to be durable; it is a second copy. */
#define VS_OOB_SYNC 1u
#define VS_OOB_COPY 2u

enum vs_page_type {
	VS_PAGE_DATA = 1,
	VS_PAGE_MAP,
	VS_PAGE_ROOT,
	VS_PAGE_LOG,
};

/**
 * struct vs_oob_slot - one block of a data page
 * @lpn: logical block, VS_NONE for padding; in the first slot of a metadata
 *	page its struct vs_meta.index
 * @crc: of its 4 KiB; goes with the data when that is moved
 * @before: @lpn of the page programmed before in the same block, if that is
 *	VS_OOB_SYNC or of metadata; else VS_NONE
 */
struct vs_oob_slot {
	uint32_t lpn;
	uint32_t crc;
	uint32_t before;
};

/**
 * struct vs_oob - spare bytes of every page
 * @crc: of all spare bytes
 * @magic: VS_MAGIC
 * @version: VS_FORMAT
 * @type: enum vs_page_type
 * @erases: of the block, this one included
 * @flags: VS_OOB_SYNC, VS_OOB_COPY
 * @seq: higher than that of all pages programmed before, but for the second
 *	copy of a page, which has the same
 * @before: @seq of the page programmed before in the same block, or 0
 * @before_type: @type of that page
 * @slot: one for each VS_BLOCK of the page
 *
 * A power cut can take the last page of a block only, and with MLC the other
 * page of its word line. So a page that cannot be read although a later one of
 * its block can was lost by the media, and the later one tells which it was.
 */
struct vs_oob {
	uint32_t crc;
	uint16_t magic;
	uint8_t version;
	uint8_t type;
	uint32_t erases;
	uint32_t flags;
	uint64_t seq;
	uint64_t before;
	uint32_t before_type;
	uint32_t reserved;
	struct vs_oob_slot slot[];
};

/**
 * struct vs_meta - the begin of a metadata page
 * @crc: of the whole page
 * @type: enum vs_page_type
 * @checkpoint: a map page and a root: theirs; a log: the one it adds to
 * @seq: of the page, as in its spare bytes
 * @index: which map page, which page of the root, which log area
 * @count: entries that follow; in a root: pages that it has
 * @tag: of a log
 * @blocks: of the device, in a root
 * @shape: checksum of geometry and lanes, in a root
 */
struct vs_meta {
	uint32_t crc;
	uint32_t type;
	uint64_t checkpoint;
	uint64_t seq;
	uint32_t index;
	uint32_t count;
	uint32_t tag;
	uint32_t blocks;
	uint32_t shape;
	uint32_t reserved;
};

/**
 * struct vs_log_entry - one change of the map
 * @lpn: logical block, of a TRIM the first
 * @slot: its new place, less than VS_TRIM; or VS_TRIM and a number of blocks
 * @order: number of the change, as pages have, less that of the last page of
 *	the root
 */
struct vs_log_entry {
	uint32_t lpn;
	uint32_t slot;
	uint32_t order;
};

_Static_assert(sizeof(struct vs_oob) == 40, "spare bytes");
_Static_assert(sizeof(struct vs_oob_slot) == 12, "spare bytes");
_Static_assert(sizeof(struct vs_meta) == 48, "metadata head");
_Static_assert(sizeof(struct vs_log_entry) == 12, "log entry");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte order");

#endif /* VCACHE_FW_LAYOUT_H */

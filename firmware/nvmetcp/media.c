// SPDX-License-Identifier: Apache-2.0
#include "media.h"

#include <string.h>

#include "nvme.h"

static uint64_t first_block(struct extent e)
{
	return e.offset / VS_BLOCK;
}

/* The block after the last block of the extent. */
static uint64_t end_block(struct extent e)
{
	return (e.offset + e.length + VS_BLOCK - 1) / VS_BLOCK;
}

static uint32_t head_bytes(struct extent e)
{
	return e.offset % VS_BLOCK;
}

static uint16_t take(struct subsys *s, struct vs_result result, vs_time *done)
{
	if (result.done > *done)
		*done = result.done;
	return subsys_status(s, result.status);
}

static uint16_t read_blocks(struct subsys *s, uint64_t block, uint64_t count,
			    void *data, vs_time *done)
{
	return take(s, vs_read(s->config.device.ssd, subsys_clock(s), block,
			       (uint32_t)count, data), done);
}

/* Read all blocks of the extent into the bounce buffer. */
static uint16_t read_bounce(struct subsys *s, struct extent e, vs_time *done)
{
	return read_blocks(s, first_block(e), end_block(e) - first_block(e),
			   s->bounce, done);
}

/**
 * media_read - read an extent
 * @s: the subsystem
 * @e: the extent
 * @data: the buffer
 * @done: raised to the time of completion
 *
 * Return: the status.
 */
uint16_t media_read(struct subsys *s, struct extent e, void *data,
		    vs_time *done)
{
	uint16_t status;

	if (media_whole_blocks(e))
		return read_blocks(s, first_block(e), e.length / VS_BLOCK, data,
				   done);
	status = read_bounce(s, e, done);
	if (!status)
		memcpy(data, s->bounce + head_bytes(e), e.length);
	return status;
}

/**
 * media_compare - compare an extent with data
 * @s: the subsystem
 * @e: the extent
 * @data: the data
 * @done: raised to the time of completion
 *
 * Return: the status; Compare Failure if the data differs.
 */
uint16_t media_compare(struct subsys *s, struct extent e, const void *data,
		       vs_time *done)
{
	uint16_t status = read_bounce(s, e, done);

	if (!status && memcmp(data, s->bounce + head_bytes(e), e.length))
		status = SC_COMPARE_FAILURE;
	return status;
}

/* Read the first and the last block, unless they are written completely. */
static uint16_t read_edges(struct subsys *s, struct extent e, vs_time *done)
{
	uint64_t first = first_block(e), last = end_block(e) - 1;
	bool head = head_bytes(e);
	bool tail = (e.offset + e.length) % VS_BLOCK;
	uint16_t status = SC_SUCCESS;

	if (head || (tail && first == last))
		status = read_blocks(s, first, 1, s->bounce, done);
	if (!status && tail && first != last)
		status = read_blocks(s, last, 1,
				     s->bounce + (last - first) * VS_BLOCK,
				     done);
	return status;
}

/**
 * media_write - write an extent
 * @s: the subsystem
 * @of: tag and placement handle of the data
 * @e: the extent
 * @data: the data
 * @fua: the data is durable at the time of completion
 * @done: raised to the time of completion
 *
 * Partial blocks are read first. The device gets both commands with the same
 * time, so that times never decrease; the time of the read is added afterwards.
 *
 * Return: the status.
 */
uint16_t media_write(struct subsys *s, struct owner of, struct extent e,
		     const void *data, bool fua, vs_time *done)
{
	uint64_t count = end_block(e) - first_block(e);
	vs_time start = subsys_clock(s), read = start;
	struct vs_result result;
	uint16_t status;

	if (!media_whole_blocks(e)) {
		status = read_edges(s, e, &read);
		if (status)
			return status;
		memcpy(s->bounce + head_bytes(e), data, e.length);
		data = s->bounce;
	}
	result = vs_write_placed(s->config.device.ssd, start, of.tag,
				 of.handle, first_block(e), (uint32_t)count,
				 data, fua || !s->write_cache);
	result.done += read - start;
	return take(s, result, done);
}

/**
 * media_trim - deallocate the blocks that are completely inside of an extent
 * @s: the subsystem
 * @tag: tag of the deallocation
 * @e: the extent
 * @done: raised to the time of completion
 *
 * Return: the status.
 */
uint16_t media_trim(struct subsys *s, uint32_t tag, struct extent e,
		    vs_time *done)
{
	uint64_t first = (e.offset + VS_BLOCK - 1) / VS_BLOCK;
	uint64_t end = (e.offset + e.length) / VS_BLOCK;

	if (first >= end)
		return SC_SUCCESS;
	return take(s, vs_trim(s->config.device.ssd, subsys_clock(s), tag,
			       first, end - first), done);
}

/**
 * media_flush - make all data of an extent durable
 * @s: the subsystem
 * @e: the extent
 * @done: raised to the time of completion
 *
 * Return: the status.
 */
uint16_t media_flush(struct subsys *s, struct extent e, vs_time *done)
{
	return take(s, vs_flush(s->config.device.ssd, subsys_clock(s),
				first_block(e), end_block(e) - first_block(e)),
		    done);
}

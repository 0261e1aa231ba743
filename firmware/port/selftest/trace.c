// SPDX-License-Identifier: Apache-2.0
/* Pseudo-random commands, which are reported to the oracle. */
#include "selftest.h"

static uint32_t data[ST_MOST * VS_BLOCK / 4];

/* xorshift64*, as in the NAND model. */
uint32_t st_below(struct st_device *d, uint32_t n)
{
	d->random ^= d->random >> 12;
	d->random ^= d->random << 25;
	d->random ^= d->random >> 27;
	return (uint32_t)(d->random * 0x2545f4914f6cdd1dULL >> 33) % n;
}

/* Half of the commands access an eighth of the device. */
static uint32_t pick(struct st_device *d)
{
	uint32_t blocks = (uint32_t)vs_blocks(d->ssd);

	return st_below(d, st_below(d, 2) ? blocks / 8 : blocks);
}

/* Advance the clock; operations that are complete then survive a power cut. */
static enum vs_status advance(struct st_device *d, struct vs_result r,
			      bool wait)
{
	if (r.status != VS_OK)
		return r.status;
	d->now = wait ? r.done : d->now + st_below(d, 300000);
	nand_tick(d->nand, d->now);
	return VS_OK;
}

static enum vs_status write(struct st_device *d, uint32_t tag, uint32_t block,
			    uint32_t count, bool fua)
{
	struct vs_result r;
	uint32_t i;

	for (i = 0; i < count; i++)
		st_oracle_write(block + i, tag, data + i * VS_BLOCK / 4);
	r = vs_write(d->ssd, d->now, tag, block, count, data, fua);
	if (fua && r.status == VS_OK)
		st_oracle_flush(block, count);
	return advance(d, r, fua || st_below(d, 2));
}

static enum vs_status random_write(struct st_device *d, bool fua)
{
	uint32_t most = st_below(d, 4) ? 2 : ST_MOST;
	uint32_t count = 1 + st_below(d, most), block = pick(d);

	if (count > vs_blocks(d->ssd) - block)
		count = 1;
	return write(d, st_below(d, ST_TAGS), block, count, fua);
}

static enum vs_status trim(struct st_device *d)
{
	uint32_t count = 1 + st_below(d, ST_MOST), block = pick(d), i;
	uint32_t tag = st_below(d, ST_TAGS);

	if (count > vs_blocks(d->ssd) - block)
		count = 1;
	for (i = 0; i < count; i++)
		st_oracle_trim(block + i, tag);
	return advance(d, vs_trim(d->ssd, d->now, tag, block, count), true);
}

static enum vs_status flush_tag(struct st_device *d)
{
	uint32_t tag = st_below(d, ST_TAGS);
	struct vs_result r = vs_flush_tag(d->ssd, d->now, tag);

	if (r.status == VS_OK)
		st_oracle_flush_tag(tag);
	return advance(d, r, true);
}

/* Flush the whole device, like the NVMe command Flush. */
enum vs_status st_flush(struct st_device *d)
{
	uint32_t blocks = (uint32_t)vs_blocks(d->ssd);
	struct vs_result r = vs_flush(d->ssd, d->now, 0, blocks);

	if (r.status == VS_OK)
		st_oracle_flush(0, blocks);
	return advance(d, r, true);
}

static enum vs_status read(struct st_device *d)
{
	uint32_t block = pick(d);
	struct vs_result r = vs_read(d->ssd, d->now, block, 1, data);

	if (r.status == VS_OK && !st_oracle_read(block, data)) {
		st_fail(d, "a block has wrong data");
		return VS_EMEDIA;
	}
	return advance(d, r, true);
}

enum vs_status st_fill(struct st_device *d)
{
	uint32_t block;

	for (block = 0; block < vs_blocks(d->ssd); block++) {
		enum vs_status status = write(d, block % ST_TAGS, block, 1,
					      false);

		if (status != VS_OK)
			return status;
	}
	return VS_OK;
}

/* Run commands; VS_EPOWER after a power cut. */
enum vs_status st_trace(struct st_device *d, uint32_t steps)
{
	enum vs_status status = VS_OK;

	while (steps-- && status == VS_OK) {
		uint32_t what = st_below(d, 100);

		if (what < 62)
			status = random_write(d, false);
		else if (what < 68)
			status = random_write(d, true);
		else if (what < 72)
			status = trim(d);
		else if (what < 86)
			status = flush_tag(d);
		else if (what < 89)
			status = st_flush(d);
		else
			status = read(d);
	}
	return status;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Recovery from arbitrary contents of the NAND. An input damages a used device:
 * {u8 kind, u16 page, u16 offset, u8 value} each. The kind defines whether checksums
 * are corrected afterwards, so that invalid data passes them. In all cases, recovery
 * and a few commands must complete, without a violation of a NAND rule or a report of
 * a sanitizer.
 */
#include <string.h>

#include "workload.h"
#include "../../firmware/core/crc32c.h"
#include "../../firmware/core/layout.h"

#define COMMAND 6

static struct device used[3];

static void make_used(struct device *d, unsigned int i)
{
	uint64_t seed = 5;
	struct oracle *o;

	*d = device_new(shape(i, VS_TAGGED), 3);
	device_format(d);
	o = oracle_new(vs_blocks(d->ssd));
	CHECK(workload_run(d, o, &seed, 300) == VS_OK);
	oracle_free(o);
}

static uint32_t zero_first(const uint8_t *bytes, size_t size)
{
	uint32_t zero = 0;

	return vs_crc32c(vs_crc32c(0, &zero, sizeof(zero)), bytes + sizeof(zero),
			 size - sizeof(zero));
}

static void damage(struct device *d, const uint8_t *in)
{
	const struct vs_geometry *g = &d->c.geometry;
	uint32_t pages = g->channels * g->ways * g->blocks * g->pages;
	uint32_t page = (in[1] | (uint32_t)in[2] << 8) % pages, crc;
	struct vs_page at = {
		page / g->pages / g->blocks, page / g->pages % g->blocks,
		page % g->pages,
	};
	uint32_t offset = in[3] | (uint32_t)in[4] << 8;
	uint8_t *data = nand_data(d->nand, at), *oob = nand_oob(d->nand, at);

	if (in[0] & 1)
		oob[offset % VS_OOB_SIZE(g->page_size)] = in[5];
	else
		data[offset % g->page_size] = in[5];
	if (in[0] & 2)
		nand_force(d->nand, at);
	if (in[0] & 4)
		nand_damage(d->nand, at);
	if (in[0] & 8) {
		crc = zero_first(data, g->page_size);
		memcpy(data, &crc, sizeof(crc));
		crc = zero_first(oob, VS_OOB_SIZE(g->page_size));
		memcpy(oob, &crc, sizeof(crc));
	}
}

static void use(struct device *d)
{
	static uint8_t data[VS_BLOCK];
	uint64_t i, blocks = vs_blocks(d->ssd);

	for (i = 0; i < blocks; i++)
		vs_read(d->ssd, d->now, i, 1, data);
	for (i = 0; i < blocks; i++)
		vs_write(d->ssd, d->now, i % 3, i * 7 % blocks, 1, data,
			 i % 8 == 0);
	vs_trim(d->ssd, d->now, 1, 2, blocks / 2);
	vs_trim(d->ssd, d->now, 0, 0, blocks);
	vs_flush(d->ssd, d->now, 0, blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t len)
{
	struct device d;

	if (!used[0].nand) {
		make_used(&used[0], 1);
		make_used(&used[1], 0);
		make_used(&used[2], 5);
	}
	if (!len)
		return 0;
	d = device_copy(&used[*in++ % 3]);
	for (len--; len >= COMMAND; len -= COMMAND, in += COMMAND)
		damage(&d, in);
	if (device_mount(&d) == VS_OK)
		use(&d);
	device_free(&d);
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A replacement for the SSD, for tests of the controller. Blocks written since the last
 * flush are in memory, durable ones are in the image (without an image, in memory
 * too). SIGKILL has the effect of a power cut.
 *
 * Environment variables: RAM_SSD_READ_US, RAM_SSD_WRITE_US and RAM_SSD_FLUSH_US are
 * the durations of commands. RAM_SSD_ERASES is the number of erases of each block,
 * RAM_SSD_BAD the number of grown bad blocks. RAM_SSD_BAD_BLOCK is unreadable. After
 * RAM_SSD_WRITES writes, the medium accepts no more. After RAM_SSD_POWER calls, the
 * power is off.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../firmware/core/ssd.h"
#include "../../firmware/nvmetcp/backend.h"

#define MAX_TAG 65535u
/* Tags that can have a weight. */
#define WEIGHTS 2
#define UNIT_BLOCKS 256u

struct dirty {
	uint8_t *data;	/* NULL: the block is as it is in the image */
	uint32_t tag;
};

struct vs_ssd {
	uint64_t blocks;
	struct dirty *dirty;
	uint8_t *durable;
	int fd;
	uint64_t read_ns, write_ns, flush_ns;
	uint64_t bad_block;
	uint64_t writes_left;
	uint64_t calls_left;
	uint64_t erases;
	uint32_t handles;
	uint64_t used[VS_HANDLES];	/* blocks of the reclaim unit */
	struct { uint32_t tag, weight; } weight[WEIGHTS];
	struct vs_stats stats;
	vs_time last;
};

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

/* Also checks that the caller's time does not go back. */
static struct vs_result begin(struct vs_ssd *s, vs_time now, uint64_t first,
			      uint64_t count, uint64_t cost)
{
	struct vs_result r = { VS_OK, now + cost };

	if (now < s->last)
		abort();
	s->last = now;
	if (!s->calls_left)
		r.status = VS_EPOWER;
	else if (first > s->blocks || count > s->blocks - first)
		r.status = VS_EINVAL;
	if (s->calls_left)
		s->calls_left--;
	return r;
}

struct vs_result vs_read(struct vs_ssd *s, vs_time now, uint64_t block,
			 uint32_t count, void *data)
{
	struct vs_result r = begin(s, now, block, count, s->read_ns);
	uint32_t i;

	for (i = 0; i < count && r.status == VS_OK; i++) {
		const struct dirty *d = &s->dirty[block + i];

		if (block + i == s->bad_block) {
			r.status = VS_EMEDIA;
			s->stats.lost_reads++;
		}
		memcpy((uint8_t *)data + (size_t)i * VS_BLOCK,
		       d->data ? d->data :
		       s->durable + (block + i) * VS_BLOCK, VS_BLOCK);
	}
	return r;
}

static void make_durable(struct vs_ssd *s, uint64_t block)
{
	struct dirty *d = &s->dirty[block];

	if (!d->data)
		return;
	memcpy(s->durable + block * VS_BLOCK, d->data, VS_BLOCK);
	free(d->data);
	d->data = NULL;
	s->stats.programmed[VS_CAUSE_HOST]++;
}

struct vs_result vs_write_placed(struct vs_ssd *s, vs_time now, uint32_t tag,
				 uint32_t handle, uint64_t block,
				 uint32_t count, const void *data, bool fua)
{
	struct vs_result r = begin(s, now, block, count, s->write_ns);
	uint32_t i;

	if (r.status == VS_OK && (tag > MAX_TAG || handle >= s->handles))
		r.status = VS_EINVAL;
	if (r.status == VS_OK && !s->writes_left)
		r.status = VS_EREADONLY;
	if (r.status != VS_OK)
		return r;
	s->writes_left--;
	s->stats.written += count;
	s->used[handle] = (s->used[handle] + count) % UNIT_BLOCKS;
	for (i = 0; i < count; i++) {
		struct dirty *d = &s->dirty[block + i];

		/* Flushes of both cover a block of another tag. */
		if (d->data && d->tag != tag)
			d->tag = VS_TAG_HOST;
		else
			d->tag = tag;
		if (!d->data)
			d->data = malloc(VS_BLOCK);
		memcpy(d->data, (const uint8_t *)data + (size_t)i * VS_BLOCK,
		       VS_BLOCK);
		if (fua)
			make_durable(s, block + i);
	}
	return r;
}

struct vs_result vs_trim(struct vs_ssd *s, vs_time now, uint32_t tag,
			 uint64_t block, uint64_t count)
{
	static const uint8_t zeroes[VS_BLOCK];
	struct vs_result r = begin(s, now, block, count, s->write_ns);
	uint64_t i;

	for (i = 0; i < count && r.status == VS_OK; i++) {
		struct dirty *d = &s->dirty[block + i];

		d->tag = d->data && d->tag != tag ? VS_TAG_HOST : tag;
		if (!d->data)
			d->data = malloc(VS_BLOCK);
		memcpy(d->data, zeroes, VS_BLOCK);
	}
	return r;
}

struct vs_result vs_flush(struct vs_ssd *s, vs_time now, uint64_t first,
			  uint64_t count)
{
	struct vs_result r = begin(s, now, first, count, s->flush_ns);
	uint64_t i;

	for (i = 0; i < count && r.status == VS_OK; i++)
		make_durable(s, first + i);
	return r;
}

struct vs_result vs_flush_tag(struct vs_ssd *s, vs_time now, uint32_t tag)
{
	struct vs_result r = begin(s, now, 0, 0, s->flush_ns);
	uint64_t i;

	if (r.status == VS_OK && tag > MAX_TAG)
		r.status = VS_EINVAL;
	for (i = 0; i < s->blocks && r.status == VS_OK; i++) {
		if (s->dirty[i].tag == tag || s->dirty[i].tag == VS_TAG_HOST)
			make_durable(s, i);
	}
	return r;
}

uint64_t vs_erase_blocks(const struct vs_ssd *s)
{
	(void)s;
	return UNIT_BLOCKS;
}

uint64_t vs_unit_blocks(const struct vs_ssd *s)
{
	(void)s;
	return UNIT_BLOCKS;
}

uint64_t vs_unit_left(const struct vs_ssd *s, uint32_t handle)
{
	return UNIT_BLOCKS - s->used[handle];
}

enum vs_status vs_unit_next(struct vs_ssd *s, uint32_t handle)
{
	if (handle >= s->handles)
		return VS_EINVAL;
	s->used[handle] = 0;
	return VS_OK;
}

enum vs_status vs_set_weight(struct vs_ssd *s, uint32_t tag, uint32_t weight)
{
	unsigned int i;

	for (i = 0; i < WEIGHTS; i++) {
		if (s->weight[i].weight && s->weight[i].tag != tag)
			continue;
		s->weight[i].tag = tag;
		s->weight[i].weight = weight;
		return VS_OK;
	}
	return VS_EINVAL;
}

uint32_t vs_get_weight(const struct vs_ssd *s, uint32_t tag)
{
	unsigned int i;

	for (i = 0; i < WEIGHTS; i++) {
		if (s->weight[i].weight && s->weight[i].tag == tag)
			return s->weight[i].weight;
	}
	return 0;
}

uint64_t vs_blocks(const struct vs_ssd *s)
{
	return s->blocks;
}

void vs_get_stats(const struct vs_ssd *s, struct vs_stats *out)
{
	*out = s->stats;
}

/* Each tag has state as long as it has data that is not durable. */
bool vs_get_tag_stats(const struct vs_ssd *s, uint32_t tag,
		      struct vs_tag_stats *out)
{
	uint64_t i;

	*out = (struct vs_tag_stats){ 0 };
	for (i = 0; i < s->blocks; i++)
		out->buffered += s->dirty[i].data && s->dirty[i].tag == tag;
	/* Values by which the fields of a log page can be told apart. */
	out->share = 10 + tag;
	out->buffer_wait_ns = 11;
	out->bank_ns = 12;
	out->bank_wait_ns = 13;
	return out->buffered;
}

uint64_t vs_data_blocks(const struct vs_ssd *s)
{
	return s->blocks;
}

void vs_erase_histogram(const struct vs_ssd *s, uint32_t width, uint32_t *out,
			uint32_t buckets)
{
	uint64_t bucket = s->erases / width;

	memset(out, 0, buckets * sizeof(*out));
	out[bucket < buckets ? bucket : buckets - 1] = (uint32_t)s->blocks;
}

static int refuse(char *error, const char *image, const char *why)
{
	snprintf(error, BACKEND_ERROR_SIZE, "%s: %s", image ? image : "--size",
		 why);
	return -1;
}

static int open_image(struct vs_ssd *s, const char *image, uint64_t *size,
		      char *error)
{
	struct stat st;

	s->fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->fd < 0 || fstat(s->fd, &st))
		return refuse(error, image, strerror(errno));
	if (!*size)
		*size = (uint64_t)st.st_size;
	if (st.st_size && (uint64_t)st.st_size != *size)
		return refuse(error, image, "it has another size than --size");
	if (!st.st_size && ftruncate(s->fd, (off_t)*size))
		return refuse(error, image, strerror(errno));
	return 0;
}

int backend_open(struct backend_device *device,
		 const struct backend_options *o,
		 char error[BACKEND_ERROR_SIZE])
{
	const char *image = o->image;
	uint64_t size = o->size;
	struct vs_ssd *s = calloc(1, sizeof(*s));

	if (!s)
		return refuse(error, image, "no memory");
	*s = (struct vs_ssd){
		.fd = -1,
		.read_ns = setting("RAM_SSD_READ_US", 0) * 1000,
		.write_ns = setting("RAM_SSD_WRITE_US", 0) * 1000,
		.flush_ns = setting("RAM_SSD_FLUSH_US", 0) * 1000,
		.bad_block = setting("RAM_SSD_BAD_BLOCK", UINT64_MAX),
		.writes_left = setting("RAM_SSD_WRITES", UINT64_MAX),
		.calls_left = setting("RAM_SSD_POWER", UINT64_MAX),
		.erases = setting("RAM_SSD_ERASES", 0),
		.handles = o->handles ? o->handles : 1,
		.stats.bad_blocks = setting("RAM_SSD_BAD", 0),
	};
	device->ssd = s;
	device->tagged = o->personality != BACKEND_BASELINE;
	device->max_tag = MAX_TAG;
	device->max_tags = o->tags ? o->tags : 64;
	device->handles = s->handles;
	device->endurance = 1000;
	device->spare_blocks = 20;
	if (image && open_image(s, image, &size, error)) {
		backend_close(device);
		return -1;
	}
	s->blocks = size / VS_BLOCK;
	if (!s->blocks || size % VS_BLOCK) {
		backend_close(device);
		return refuse(error, image, "must be a multiple of 4096 bytes");
	}
	s->durable = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  image ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
			  s->fd, 0);
	s->dirty = calloc(s->blocks, sizeof(*s->dirty));
	if (s->durable == MAP_FAILED || !s->dirty) {
		s->durable = NULL;
		backend_close(device);
		return refuse(error, image, "no memory");
	}
	return 0;
}

void backend_close(struct backend_device *device)
{
	struct vs_ssd *s = device->ssd;
	uint64_t i;

	for (i = 0; s->dirty && i < s->blocks; i++)
		free(s->dirty[i].data);
	if (s->durable)
		munmap(s->durable, s->blocks * VS_BLOCK);
	if (s->fd >= 0)
		close(s->fd);
	free(s->dirty);
	free(s);
}

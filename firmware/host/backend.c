// SPDX-License-Identifier: Apache-2.0
/*
 * The SSD of vcache-ssd: the firmware with a NAND array in an image file.
 *
 * A new image is created under a temporary name and renamed after it has been
 * formatted. So an image that cannot be mounted is damaged, never incomplete,
 * and it is not overwritten.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../nand/nand.h"
#include "../nvmetcp/backend.h"
#include "drive.h"

/* Largest tag; the number of tags with state at a time is max_tags. */
#define MAX_TAG 65535u
#define MAX_BLOCKS (1u << 16)

/* Properties of an SSD except its geometry, stored in the label of the image. */
struct kind {
	uint32_t personality;
	uint32_t mapping;
	uint32_t nand;
	uint32_t tags;
	uint32_t handles;
};

struct backend {
	struct kind kind;
	struct nand *nand;
	void *memory;
};

__attribute__((format(printf, 2, 3)))
static int refuse(char error[BACKEND_ERROR_SIZE], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, BACKEND_ERROR_SIZE, format, args);
	va_end(args);
	return -1;
}

/* Set the smallest number of blocks for a capacity of @size bytes. */
static bool fit(struct vs_config *c, uint64_t size)
{
	const struct vs_geometry *g = &c->geometry;
	uint64_t row = (uint64_t)g->channels * g->ways * g->pages *
		       g->page_size;
	uint64_t blocks = size / row;

	do {
		if (++blocks > MAX_BLOCKS)
			return false;
		c->geometry.blocks = (uint32_t)blocks;
	} while (vs_capacity(c) < (size + VS_BLOCK - 1) / VS_BLOCK);
	return true;
}

static const struct drive *drive_of(uint32_t nand)
{
	switch (nand) {
	case BACKEND_JASMINE:
		return &drive_jasmine;
	case BACKEND_NO_TIME:
		return &drive_no_time;
	case BACKEND_SVD:
		return &drive_svd;
	default:
		return &drive_tlc;
	}
}

static void write_label(uint8_t label[NAND_LABEL], const struct kind *k)
{
	label[0] = (uint8_t)k->personality;
	label[1] = (uint8_t)k->nand;
	label[2] = (uint8_t)k->tags;
	label[3] = (uint8_t)(k->tags >> 8);
	label[4] = (uint8_t)k->mapping;
	label[5] = (uint8_t)k->handles;
}

static struct kind read_label(const uint8_t label[NAND_LABEL])
{
	return (struct kind){
		.personality = label[0],
		.nand = label[1],
		.tags = label[2] | (uint32_t)label[3] << 8,
		.mapping = label[4],
		.handles = label[5],
	};
}

/* The properties of a new SSD: the options, and defaults for the rest. */
static struct kind new_kind(const struct backend_options *o)
{
	struct kind k = { o->personality, o->mapping, o->nand, o->tags,
			  o->handles };

	if (!k.personality)
		k.personality = BACKEND_TAGGED;
	if (!k.mapping)
		k.mapping = BACKEND_PAGE;
	if (!k.nand)
		k.nand = BACKEND_TLC;
	if (!k.tags)
		k.tags = drive_of(k.nand)->config.max_tags;
	if (!k.handles)
		k.handles = 1;
	return k;
}

/* Check that the options match the properties of an existing image. */
static int same_kind(const struct backend_options *o, const struct kind *made,
		     char error[BACKEND_ERROR_SIZE])
{
	static const char *const personality[] = { "?", "tagged", "baseline" };
	static const char *const mapping[] = { "?", "page", "fast" };
	static const char *const nand[] = { "?", "tlc", "jasmine", "none",
					    "svd" };

	if (made->personality - 1 >= BACKEND_BASELINE ||
	    made->mapping - 1 >= BACKEND_FAST ||
	    made->nand - 1 >= BACKEND_SVD || made->handles - 1 >= VS_HANDLES)
		return refuse(error, "--image %s: not an image of an SSD",
			      o->image);
	if (o->personality && o->personality != made->personality)
		return refuse(error,
			      "--image %s: was created with --personality %s",
			      o->image, personality[made->personality]);
	if (o->mapping && o->mapping != made->mapping)
		return refuse(error, "--image %s: was created with --mapping %s",
			      o->image, mapping[made->mapping]);
	if (o->nand && o->nand != made->nand)
		return refuse(error, "--image %s: was created with --nand %s",
			      o->image, nand[made->nand]);
	if (o->tags && o->tags != made->tags)
		return refuse(error, "--image %s: was created with --tags %u",
			      o->image, made->tags);
	if (o->handles && o->handles != made->handles)
		return refuse(error, "--image %s: was created with --handles %u",
			      o->image, made->handles);
	return 0;
}

static struct vs_config config_of(const struct kind *k, uint64_t buffer)
{
	struct vs_config c = drive_of(k->nand)->config;

	c.personality = k->personality == BACKEND_BASELINE ? VS_BASELINE :
			VS_TAGGED;
	c.mapping = k->mapping == BACKEND_FAST ? VS_MAP_FAST : VS_MAP_PAGE;
	c.max_tags = k->tags;
	c.handles = k->handles;
	if (buffer)
		c.buffer_blocks = (uint32_t)(buffer / VS_BLOCK);
	return c;
}

/* Get the configuration of an existing SSD, or of a new one. */
static int choose(struct backend *b, struct vs_config *c,
		  const struct backend_options *o, bool fresh,
		  char error[BACKEND_ERROR_SIZE])
{
	struct vs_geometry found;
	uint8_t label[NAND_LABEL];

	if (fresh && !o->size)
		return refuse(error, "a new SSD requires --size");
	if (!fresh && nand_image_head(o->image, &found, label))
		return refuse(error, "--image %s: %s", o->image,
			      errno == EINVAL ? "not an image of an SSD" :
			      strerror(errno));
	b->kind = fresh ? new_kind(o) : read_label(label);
	if (!fresh && same_kind(o, &b->kind, error))
		return -1;
	if (b->kind.mapping == BACKEND_FAST && b->kind.handles > 1)
		return refuse(error, "--handles: --mapping fast has only one");
	*c = config_of(&b->kind, o->buffer);
	if (o->size && !fit(c, o->size))
		return refuse(error, "--size: exceeds the largest possible SSD");
	if (fresh)
		return 0;
	if (o->size && found.blocks != c->geometry.blocks)
		return refuse(error, "--image %s: its size differs from --size",
			      o->image);
	c->geometry = found;
	return 0;
}

static struct nand_timing slowed(struct nand_timing t, uint32_t times)
{
	t.read_ns *= times;
	t.program_lsb_ns *= times;
	t.program_msb_ns *= times;
	t.erase_ns *= times;
	t.byte_ps *= times;
	return t;
}

/* Power up the SSD, and format it if it is @fresh. */
static int start(struct backend_device *device, const struct vs_config *c,
		 const struct backend_options *o, const char *path, bool fresh,
		 char error[BACKEND_ERROR_SIZE])
{
	struct backend *b = device->backend;
	struct nand_config nand = {
		.geometry = c->geometry,
		.timing = slowed(*drive_of(b->kind.nand)->timing,
				 o->slowdown),
		.seed = 1,
		.path = path,
	};
	struct vs_result r;

	write_label(nand.label, &b->kind);
	b->nand = nand_open(&nand);
	if (!b->nand)
		return refuse(error, "--image %s: %s", path ? path : "(none)",
			      strerror(errno));
	b->memory = malloc(vs_size_needed(c));
	if (!b->memory)
		return refuse(error, "out of memory for an SSD of this size");
	r = (fresh ? vs_format : vs_mount)(&device->ssd, b->memory, c,
					   &nand_ops, b->nand, 0);
	/* A worn-out SSD can still be read. */
	if (r.status != VS_OK && (fresh || r.status != VS_EREADONLY))
		return refuse(error, "--image %s: %s", path ? path : "(none)",
			      r.status == VS_EMEDIA ?
			      "its metadata is lost, or has another version" :
			      "too few good blocks are left");
	device->tagged = c->personality == VS_TAGGED;
	device->max_tags = c->max_tags;
	device->handles = c->handles;
	device->endurance = drive_of(b->kind.nand)->endurance;
	device->spare_blocks = c->bad_blocks * c->lanes;
	return 0;
}

int backend_open(struct backend_device *device,
		 const struct backend_options *o,
		 char error[BACKEND_ERROR_SIZE])
{
	bool fresh = !o->image || access(o->image, F_OK);
	char path[4096] = "";
	struct vs_config c;

	*device = (struct backend_device){ .max_tag = MAX_TAG };
	device->backend = calloc(1, sizeof(*device->backend));
	if (!device->backend)
		return refuse(error, "out of memory");
	if (o->image && snprintf(path, sizeof(path), "%s%s", o->image,
				 fresh ? ".new" : "") >= (int)sizeof(path))
		refuse(error, "--image %s: the name is too long", o->image);
	else if (!choose(device->backend, &c, o, fresh, error)) {
		if (fresh && o->image)
			(void)unlink(path);
		if (!start(device, &c, o, o->image ? path : NULL, fresh,
			   error)) {
			if (!fresh || !o->image || !rename(path, o->image))
				return 0;
			refuse(error, "--image %s: %s", o->image,
			       strerror(errno));
		}
	}
	backend_close(device);
	return -1;
}

void backend_close(struct backend_device *device)
{
	if (device->backend->nand)
		nand_close(device->backend->nand);
	free(device->backend->memory);
	free(device->backend);
	device->backend = NULL;
	device->ssd = NULL;
}

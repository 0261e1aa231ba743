// SPDX-License-Identifier: Apache-2.0
/*
 * The SSD of vcache-ssd: the firmware on a NAND array in an image file.
 *
 * A new image is made beside its name and gets it when it is formatted: one
 * that cannot be mounted is damaged, never half made, and is not touched.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../nand/nand.h"
#include "../nvmetcp/backend.h"

/* What a tag's number may be; the firmware has room for any, see max_tags. */
#define MAX_TAG 65535u
#define MAX_BLOCKS (1u << 16)

/*
 * A modern TLC drive, small: 8 dies on 4 channels, 16 KiB pages programmed in
 * one shot, 8 MiB of write buffer, 7 % spare. The blocks follow the size.
 */
static const struct vs_config drive = {
	.geometry = {
		.channels = 4,
		.ways = 2,
		.pages = 128,
		.page_size = 16384,
	},
	.buffer_blocks = 2048,
	.max_tags = 64,
	.lanes = 1,
	.meta_stripe = 2,
	.spare_percent = 7,
	.bad_blocks = 4,
	.personality = VS_TAGGED,
	.gc = VS_GC_GREEDY,
	.gc_pages = 8,
	.wear_gap = 64,
};

struct backend {
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

/* The smallest number of blocks with which the host sees @size bytes. */
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

static int choose(struct vs_config *c, const char *image, uint64_t size,
		  bool fresh, char error[BACKEND_ERROR_SIZE])
{
	struct vs_geometry found;

	*c = drive;
	if (size && !fit(c, size))
		return refuse(error, "--size: larger than the largest SSD");
	if (fresh)
		return size ? 0 : refuse(error, "--size is needed for a new SSD");
	if (nand_image_geometry(image, &found))
		return refuse(error, "--image %s: %s", image,
			      errno == EINVAL ? "not an image of an SSD" :
			      strerror(errno));
	if (size && found.blocks != c->geometry.blocks)
		return refuse(error, "--image %s: has not the size of --size",
			      image);
	c->geometry = found;
	return 0;
}

/* Power up; @fresh: with nothing on it. */
static int start(struct backend_device *device, const struct vs_config *c,
		 const char *path, bool fresh, char error[BACKEND_ERROR_SIZE])
{
	struct nand_config nand = {
		.geometry = c->geometry,
		.timing = nand_tlc,
		.seed = 1,
		.path = path,
	};
	struct backend *b = device->backend;
	struct vs_result r;

	b->nand = nand_open(&nand);
	if (!b->nand)
		return refuse(error, "--image %s: %s", path ? path : "(none)",
			      strerror(errno));
	b->memory = malloc(vs_size_needed(c));
	if (!b->memory)
		return refuse(error, "no memory for an SSD of this size");
	r = (fresh ? vs_format : vs_mount)(&device->ssd, b->memory, c,
					   &nand_ops, b->nand, 0);
	if (r.status != VS_OK)
		return refuse(error, "--image %s: %s", path ? path : "(none)",
			      r.status == VS_EMEDIA ?
			      "its metadata is lost, or of another version" :
			      "has no room left for what it needs");
	return 0;
}

int backend_open(struct backend_device *device, const char *image,
		 uint64_t size, char error[BACKEND_ERROR_SIZE])
{
	bool fresh = !image || access(image, F_OK);
	char path[4096] = "";
	struct vs_config c;

	*device = (struct backend_device){ .max_tag = MAX_TAG };
	device->backend = calloc(1, sizeof(*device->backend));
	if (!device->backend)
		return refuse(error, "no memory");
	if (image && snprintf(path, sizeof(path), "%s%s", image,
			      fresh ? ".new" : "") >= (int)sizeof(path))
		refuse(error, "--image %s: too long", image);
	else if (!choose(&c, image, size, fresh, error)) {
		if (fresh && image)
			(void)unlink(path);
		if (!start(device, &c, image ? path : NULL, fresh, error)) {
			if (!fresh || !image || !rename(path, image))
				return 0;
			refuse(error, "--image %s: %s", image, strerror(errno));
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

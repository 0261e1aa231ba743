// SPDX-License-Identifier: Apache-2.0
/* The memory of the array on the host: private to the process, or an image file. */
#include "nand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array.h"

void nand_broken(const char *rule, struct vs_page at)
{
	fprintf(stderr, "nand: broken rule: %s (bank %u block %u page %u)\n",
		rule, at.bank, at.block, at.page);
	abort();
}

void *nand_alloc(size_t size)
{
	void *p = malloc(size);

	if (!p)
		abort();
	return p;
}

void nand_free(void *p)
{
	free(p);
}

void nand_wear(struct nand *n, uint32_t fail_ppm)
{
	n->c.fail_ppm = fail_ppm;
}

uint32_t nand_failed(const struct nand *n)
{
	size_t blocks = (size_t)nand_banks(n) * n->c.geometry.blocks, i;
	uint32_t failed = 0;

	for (i = 0; i < blocks; i++)
		failed += n->block[i].bad || n->block[i].failed;
	return failed;
}

static size_t image_size(const struct nand *n)
{
	return sizeof(struct image_head) + nand_array_size(n);
}

static void blank_image(struct nand *n)
{
	const struct vs_geometry *g = &n->c.geometry;
	size_t blocks = (size_t)nand_banks(n) * g->blocks, bad = 0;
	struct image_head *head = (struct image_head *)n->image;

	while (bad < n->c.factory_bad && bad < blocks) {
		size_t b = nand_random(&n->random) % blocks;

		bad += !n->block[b].bad;
		n->block[b].bad = 1;
	}
	head->geometry = *g;
	memcpy(head->label, n->c.label, sizeof(head->label));
	memcpy(head->magic, IMAGE_MAGIC, sizeof(head->magic));
}

static bool same_geometry(const struct vs_geometry *a,
			  const struct vs_geometry *b)
{
	return a->channels == b->channels && a->ways == b->ways &&
	       a->blocks == b->blocks && a->pages == b->pages &&
	       a->page_size == b->page_size && a->paired == b->paired;
}

/* Map the file, which must be empty or an image of the same size. */
static int map_image(struct nand *n)
{
	struct image_head *head;
	struct stat stat;
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	if (n->c.path) {
		flags = MAP_SHARED;
		fd = open(n->c.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || fstat(fd, &stat))
			goto fail;
		if (stat.st_size && stat.st_size != (off_t)n->image_size) {
			close(fd);
			return -EINVAL;
		}
		if (ftruncate(fd, (off_t)n->image_size))
			goto fail;
	}
	n->image = mmap(NULL, n->image_size, PROT_READ | PROT_WRITE, flags, fd,
			0);
	if (n->image == MAP_FAILED) {
		n->image = NULL;
		goto fail;
	}
	if (fd >= 0)
		close(fd);
	nand_lay_out(n, n->image + sizeof(*head));
	head = (struct image_head *)n->image;
	if (!head->magic[0])
		blank_image(n);
	else if (memcmp(head->magic, IMAGE_MAGIC, sizeof(head->magic)) ||
		 !same_geometry(&head->geometry, &n->c.geometry))
		return -EINVAL;
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	return -errno;
}

int nand_image_head(const char *path, struct vs_geometry *geometry,
		    uint8_t label[NAND_LABEL])
{
	struct image_head head;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, &head, sizeof(head));
	close(fd);
	if (n < 0)
		return -1;
	if (n != sizeof(head) ||
	    memcmp(head.magic, IMAGE_MAGIC, sizeof(head.magic))) {
		errno = EINVAL;
		return -1;
	}
	*geometry = head.geometry;
	memcpy(label, head.label, sizeof(head.label));
	return 0;
}

struct nand *nand_open(const struct nand_config *c)
{
	struct nand *n = calloc(1, sizeof(*n));
	int error;

	if (!n)
		return NULL;
	n->c = *c;
	n->random = c->seed * 2 + 1;
	n->bank_free = calloc(nand_banks(n), sizeof(*n->bank_free));
	n->channel_free = calloc(c->geometry.channels,
				 sizeof(*n->channel_free));
	n->oob_size = VS_OOB_SIZE(c->geometry.page_size);
	n->image_size = image_size(n);
	error = n->bank_free && n->channel_free ? map_image(n) : -ENOMEM;
	if (error) {
		nand_close(n);
		errno = -error;
		return NULL;
	}
	return n;
}

struct nand *nand_copy(const struct nand *n)
{
	struct nand_config c = n->c;
	struct nand *copy;

	c.path = NULL;
	c.factory_bad = 0;
	copy = nand_open(&c);
	if (!copy)
		return NULL;
	memcpy(copy->image, n->image, n->image_size);
	copy->random = n->random;
	return copy;
}

void nand_close(struct nand *n)
{
	nand_forget(n, UINT64_MAX);
	free(n->op);
	if (n->image)
		munmap(n->image, n->image_size);
	free(n->bank_free);
	free(n->channel_free);
	free(n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What vcache-ssd is linked with, besides ../core/ssd.h: how the SSD behind it
 * is opened and closed.
 */
#ifndef VCACHE_NVMETCP_BACKEND_H
#define VCACHE_NVMETCP_BACKEND_H

#include <stdint.h>

#include "../core/ssd.h"

#define BACKEND_ERROR_SIZE 256

struct backend;

/**
 * struct backend_device - an open SSD
 * @ssd: it
 * @max_tag: the largest tag that it takes, at most 65535
 * @backend: the backend's own
 */
struct backend_device {
	struct vs_ssd *ssd;
	uint32_t max_tag;
	struct backend *backend;
};

/**
 * backend_open - open or make an SSD
 * @device: it
 * @image: the file that holds its medium; NULL: in memory, gone at the end
 * @size: bytes that the host is to see; 0: as the image says
 * @error: why not, in one line
 *
 * Return: 0, or -1 with @error.
 */
int backend_open(struct backend_device *device, const char *image,
		 uint64_t size, char error[BACKEND_ERROR_SIZE]);

/**
 * backend_close - let go of an SSD, without a flush
 * @device: it
 */
void backend_close(struct backend_device *device);

#endif /* VCACHE_NVMETCP_BACKEND_H */

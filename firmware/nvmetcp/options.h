/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#ifndef VCACHE_NVMETCP_OPTIONS_H
#define VCACHE_NVMETCP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "backend.h"
#include "fabrics.h"

/**
 * struct options - the options on the command line
 * @address: address to listen on
 * @address_length: length of @address
 * @device: options of the SSD
 * @namespaces: number of namespaces
 * @lba_shift: binary logarithm of the logical block size
 * @nqn: name of the subsystem
 * @multipath: report that several controllers are possible
 * @timing: complete commands after the time of the device
 * @exclusive_flush: a flush delays all later commands
 * @peer_timeout: seconds without progress until a connection is closed
 */
struct options {
	struct sockaddr_storage address;
	socklen_t address_length;
	struct backend_options device;
	uint32_t namespaces;
	uint8_t lba_shift;
	char nqn[NQN_SIZE];
	bool multipath;
	bool timing;
	bool exclusive_flush;
	uint32_t peer_timeout;
};

enum options_result {
	OPTIONS_OK,
	OPTIONS_HELP,
	OPTIONS_BAD,
};

enum options_result options_parse(struct options *o, int argc, char **argv);

#endif /* VCACHE_NVMETCP_OPTIONS_H */

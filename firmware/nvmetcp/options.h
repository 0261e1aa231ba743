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
 * struct options - what the command line asks for
 * @address: where to listen
 * @address_length: of it
 * @device: the SSD
 * @namespaces: how many
 * @lba_shift: logical block size
 * @nqn: name of the subsystem
 * @multipath: say that several controllers are possible
 * @timing: complete when the device says
 * @exclusive_flush: a flush holds back what comes after it
 * @peer_timeout: seconds
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

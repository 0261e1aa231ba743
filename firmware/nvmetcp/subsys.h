/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVM subsystem: the SSD, its namespaces, and the state that all controllers
 * share. It is independent of sockets; the server sets the time.
 */
#ifndef VCACHE_NVMETCP_SUBSYS_H
#define VCACHE_NVMETCP_SUBSYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "../core/ssd.h"
#include "backend.h"
#include "fabrics.h"
#include "fdp.h"
#include "heap.h"
#include "nvme.h"
#include "tags.h"

#define SERIAL_SIZE 20u

/**
 * struct subsys_config - configuration of a subsystem
 * @device: the SSD, which the caller owns
 * @nqn: name of the subsystem
 * @namespaces: number of namespaces of equal size
 * @lba_shift: binary logarithm of the logical block size, 9 or 12
 * @multipath: report that several controllers are possible
 * @timing: complete commands after the time of the device, not at once
 * @exclusive_flush: a flush delays all later commands until it completes
 * @peer_timeout: ns without progress until a connection is closed
 */
struct subsys_config {
	struct backend_device device;
	const char *nqn;
	uint32_t namespaces;
	uint8_t lba_shift;
	bool multipath;
	bool timing;
	bool exclusive_flush;
	vs_time peer_timeout;
};

/**
 * struct subsys_health - counters since the start of the process
 * @sectors_read: sectors of 512 bytes
 * @sectors_written: sectors of 512 bytes
 * @reads: read commands
 * @writes: write commands
 * @errors: commands with an entry in the error log
 * @flushes: flush commands
 * @late: completions that were sent more than LATE_NS after their time
 * @latest: longest delay of a completion, ns
 * @start: start of the process
 */
struct subsys_health {
	uint64_t sectors_read;
	uint64_t sectors_written;
	uint64_t reads;
	uint64_t writes;
	uint64_t errors;
	uint64_t flushes;
	uint64_t late;
	uint64_t latest;
	vs_time start;
};

/* A completion counts as late if it is sent this much after its time. */
#define LATE_NS 100000u

struct conn;
struct ctrl;

/**
 * struct subsys - an NVM subsystem
 * @config: the configuration; its nqn points to @nqn
 * @nqn: name
 * @serial: serial number, derived from the name
 * @namespace_blocks: VS_BLOCK blocks of each namespace
 * @now: current time, which the server sets before each event
 * @held_until: the device starts no command before this time
 * @instance: random number of this power-on, not 0
 * @write_cache: the Volatile Write Cache feature
 * @read_only: the device accepts no more writes
 * @failed: the device has no power
 * @health: counters
 * @tags: counters of each tag
 * @fdp: state of Flexible Data Placement
 * @pending: commands whose completion time has not come
 * @bounce: buffer for partial blocks, MDTS_BYTES + 2 blocks
 * @zeroes: MDTS_BYTES zeroes
 * @next_cntlid: start of the search for a free controller ID
 * @ctrl_count: number of controllers
 * @closed: number of connections that the server has to free
 * @ctrls: controllers
 * @conns: connections
 * @ready: connections with output
 */
struct subsys {
	struct subsys_config config;
	char nqn[NQN_SIZE];
	char serial[SERIAL_SIZE + 1];
	uint64_t namespace_blocks;
	vs_time now;
	vs_time held_until;
	uint32_t instance;
	bool write_cache;
	bool read_only;
	bool failed;
	struct subsys_health health;
	struct tags tags;
	struct fdp fdp;
	struct heap pending;
	uint8_t *bounce;
	uint8_t *zeroes;
	uint16_t next_cntlid;
	unsigned int ctrl_count;
	unsigned int closed;
	LIST_HEAD(, ctrl) ctrls;
	LIST_HEAD(, conn) conns;
	STAILQ_HEAD(, conn) ready;
};

bool subsys_init(struct subsys *s, const struct subsys_config *config,
		 vs_time now);
void subsys_destroy(struct subsys *s);
void subsys_tick(struct subsys *s);
void subsys_complete_due(struct subsys *s);
vs_time subsys_clock(const struct subsys *s);
void subsys_hold(struct subsys *s, vs_time until);
uint16_t subsys_status(struct subsys *s, enum vs_status status);
uint16_t subsys_flush_all(struct subsys *s, vs_time *done);
void subsys_namespace_id(const struct subsys *s, uint32_t nsid,
			 uint8_t id[16]);

static inline bool subsys_has_namespace(const struct subsys *s, uint32_t nsid)
{
	return nsid >= 1 && nsid <= s->config.namespaces;
}

/* The first block of an existing namespace. */
static inline uint64_t subsys_first_block(const struct subsys *s,
					  uint32_t nsid)
{
	return (nsid - 1) * s->namespace_blocks;
}

/* Logical blocks of each namespace. */
static inline uint64_t subsys_namespace_lbas(const struct subsys *s)
{
	return s->namespace_blocks * VS_BLOCK >> s->config.lba_shift;
}

#endif /* VCACHE_NVMETCP_SUBSYS_H */

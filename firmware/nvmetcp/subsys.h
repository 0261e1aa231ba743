/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVM subsystem: the one SSD, its namespaces, and what all controllers
 * share. Nothing here knows of sockets; the time is told by the server.
 */
#ifndef VCACHE_NVMETCP_SUBSYS_H
#define VCACHE_NVMETCP_SUBSYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "../core/ssd.h"
#include "backend.h"
#include "fabrics.h"
#include "heap.h"
#include "nvme.h"
#include "tags.h"

#define SERIAL_SIZE 20u

/**
 * struct subsys_config - how a subsystem is to be
 * @device: the SSD; stays the caller's
 * @nqn: its name
 * @namespaces: into how many equal parts the SSD is divided
 * @lba_shift: the logical block's size, 9 or 12
 * @multipath: several controllers are the same host's paths
 * @timing: complete commands when the device says, not at once
 * @exclusive_flush: a flush holds back what comes after it until it is done
 * @peer_timeout: for how long a host may be in the middle of something, ns
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
 * struct subsys_health - since the start of the process
 * @sectors_read: 512 B sectors
 * @sectors_written: 512 B sectors
 * @reads: commands
 * @writes: commands
 * @errors: commands that were given an error log entry
 * @flushes: commands
 * @late: completions given to the transport after their time, by LATE_NS
 * @latest: the worst of them, ns
 * @start: when it began
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

/* A completion is late when the event loop came to it this much after it. */
#define LATE_NS 100000u

struct conn;
struct ctrl;

/**
 * struct subsys - an NVM subsystem
 * @config: as it was made; its nqn is @nqn
 * @nqn: its name
 * @serial: of the SSD, made from the name
 * @namespace_blocks: VS_BLOCK blocks of each namespace
 * @now: the time; the server sets it before it hands on an event
 * @held_until: the device takes nothing before this time
 * @instance: random, of this power-on; not 0
 * @write_cache: the Volatile Write Cache feature
 * @read_only: the device takes no more writes
 * @failed: the device is gone (its power is off)
 * @health: counters
 * @tags: counters of each tag
 * @pending: commands that the device has done and whose time has not come
 * @bounce: for blocks that are the host's in part, MDTS_BYTES + 2 blocks
 * @zeroes: MDTS_BYTES of them
 * @next_cntlid: where the search for a free controller ID goes on
 * @ctrl_count: controllers
 * @closed: connections that the server has to free
 * @ctrls: controllers
 * @conns: connections
 * @ready: connections that have something to send
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

/* The first block of a namespace that there is. */
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

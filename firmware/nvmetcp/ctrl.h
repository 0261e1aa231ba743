/* SPDX-License-Identifier: Apache-2.0 */
/* A controller: the counterpart of one connected host. */
#ifndef VCACHE_NVMETCP_CTRL_H
#define VCACHE_NVMETCP_CTRL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "fabrics.h"
#include "limits.h"
#include "settings.h"
#include "subsys.h"

/* Supported asynchronous events (figure 146 and following) */
enum event {
	EVENT_PERSISTENT_INTERNAL_ERROR,
	EVENT_SMART_READ_ONLY,
	EVENT_NAMESPACE_ATTRIBUTE,
	EVENTS,
};

/**
 * struct error_entry - an entry of the error information log
 * @count: number of the error, from 1; 0: no entry
 * @sqid: queue
 * @cid: command
 * @status: status of the command
 * @location: first byte of the invalid field
 * @lba: first logical block
 * @nsid: namespace
 */
struct error_entry {
	uint64_t count;
	uint16_t sqid;
	uint16_t cid;
	uint16_t status;
	uint16_t location;
	uint64_t lba;
	uint32_t nsid;
};

/**
 * struct ctrl - a controller
 * @subsys: its subsystem
 * @discovery: it is a discovery controller
 * @cntlid: controller ID
 * @hostid: ID of the host
 * @hostnqn: NQN of the host
 * @kato: Keep Alive Timeout in ms; 0: none
 * @keep_alive: time at which the timeout expires
 * @cc: Controller Configuration
 * @ready: CSTS.RDY
 * @failed: CSTS.CFS
 * @shutdown: CC.SHN was written
 * @shutdown_done: time at which the flush of the shutdown completes
 * @io_queues: number of I/O queues granted to the host
 * @queues: its connections; the first one is the admin queue
 * @settings: values of features without an effect
 * @event_config: Asynchronous Event Configuration
 * @aer: parked Asynchronous Event Requests
 * @aers: number of parked requests
 * @events: bit mask of events that are not reported yet
 * @changed: all namespaces are on the changed namespace list
 * @errors: number of errors
 * @error_log: the last errors, by number modulo the size
 * @link: entry in subsys->ctrls
 */
struct ctrl {
	struct subsys *subsys;
	bool discovery;
	uint16_t cntlid;
	uint8_t hostid[16];
	char hostnqn[NQN_SIZE];
	uint32_t kato;
	vs_time keep_alive;
	uint32_t cc;
	bool ready;
	bool failed;
	bool shutdown;
	vs_time shutdown_done;
	uint16_t io_queues;
	struct conn *queues[IO_QUEUES + 1];
	struct settings settings;
	uint32_t event_config;
	struct request *aer[AER_LIMIT];
	unsigned int aers;
	unsigned int events;
	bool changed;
	uint64_t errors;
	struct error_entry error_log[ERROR_LOG_ENTRIES];
	LIST_ENTRY(ctrl) link;
};

struct ctrl *ctrl_new(struct subsys *s, struct conn *admin, bool discovery);
struct ctrl *ctrl_find(struct subsys *s, uint16_t cntlid);
void ctrl_detach(struct conn *c);
void ctrl_tick(struct ctrl *k);
void ctrl_keep_alive(struct ctrl *k);
void ctrl_set_kato(struct ctrl *k, uint32_t kato);
uint64_t ctrl_cap(void);
uint32_t ctrl_csts(const struct ctrl *k);
void ctrl_write_cc(struct ctrl *k, uint32_t cc);

void aer_park(struct ctrl *k, struct request *r);
bool aer_abort(struct ctrl *k, uint16_t cid);
void aer_raise_all(struct subsys *s, enum event event);

#endif /* VCACHE_NVMETCP_CTRL_H */

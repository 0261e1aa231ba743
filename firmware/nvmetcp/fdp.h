/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flexible Data Placement (TP4146; Base 2.1 §8.1.10). The SSD is one endurance
 * group with one reclaim group. Each namespace has all reclaim unit handles as
 * its placement handles, so a placement identifier is the number of the handle.
 */
#ifndef VCACHE_NVMETCP_FDP_H
#define VCACHE_NVMETCP_FDP_H

#include <stdbool.h>
#include <stdint.h>

#include "../core/ssd.h"
#include "bytes.h"

#define FDP_ENDURANCE_GROUP 1u
/* Events of each kind that are kept: the newest. */
#define FDP_EVENTS 63u

enum fdp_event_type {
	FDP_UNIT_NOT_FULL = 0x00,
	FDP_INVALID_IDENTIFIER = 0x03,
};

/* Which fields of an event are valid. */
#define FDP_EVENT_PIV (1u << 0)
#define FDP_EVENT_NSIDV (1u << 1)
#define FDP_EVENT_LV (1u << 2)

struct fdp_event {
	uint8_t type;
	uint8_t flags;
	struct le16 pid;
	struct le64 timestamp;
	struct le32 nsid;
	uint8_t specific[16];
	struct le16 rgid;
	uint8_t ruhid;
	uint8_t reserved35[5];
	uint8_t vendor[24];
};

_Static_assert(sizeof(struct fdp_event) == 64, "FDP event");

/**
 * struct fdp - state of Flexible Data Placement
 * @enabled: of each handle, the types of events that are recorded, as bits
 * @event: ring of the newest host events
 * @events: all host events since the start
 */
struct fdp {
	uint32_t enabled[VS_HANDLES];
	struct fdp_event event[FDP_EVENTS];
	uint64_t events;
};

struct log_window;
struct request;
struct subsys;

bool fdp_supported(const struct subsys *s);
uint16_t fdp_handle(struct request *r, uint32_t *handle);
uint16_t fdp_receive_prepare(struct request *r);
uint16_t fdp_receive_execute(struct request *r);
uint16_t fdp_send_prepare(struct request *r);
uint16_t fdp_send_execute(struct request *r);
uint16_t fdp_events_prepare(struct request *r, bool set);
uint16_t fdp_events_get(struct request *r);
uint16_t fdp_events_set(struct request *r);
uint16_t fdp_mode_get(struct request *r);

/* Size of a log page of endurance groups, or 0. */
uint64_t fdp_log_size(const struct subsys *s, uint8_t lid, bool host_events);
void fdp_log(const struct subsys *s, uint8_t lid, bool host_events,
	     struct log_window *w);

#endif /* VCACHE_NVMETCP_FDP_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of requests, and of resources per host. */
#ifndef VCACHE_NVMETCP_LIMITS_H
#define VCACHE_NVMETCP_LIMITS_H

/*
 * In-capsule data of each queue. For the admin queue it cannot be negotiated:
 * Linux sends up to 8 KiB (nvme_tcp_inline_data_size()).
 */
#define IN_CAPSULE_DATA 8192u
/* Data of one H2CData PDU: at least 4096 and a multiple of 4 (§3.6.2.3). */
#define MAXH2CDATA (128u << 10)
/* Data of one command: MDTS 8, in units of CAP.MPSMIN, 4 KiB. */
#define MDTS 8
#define MDTS_BYTES (4096u << MDTS)

/* Entries of a queue, CAP.MQES + 1. */
#define QUEUE_ENTRIES 128u
#define IO_QUEUES 16u
/* The admin queue size that every controller must support. */
#define ADMIN_QUEUE_ENTRIES 32u
/* Parked Asynchronous Event Requests, AERL + 1. */
#define AER_LIMIT 4u
#define ABORT_LIMIT 4u
#define ERROR_LOG_ENTRIES 64u
#define DSM_RANGES 256u

#define CONTROLLERS 32u
#define CONNECTIONS 256u
#define NAMESPACES 1024u

/*
 * Data buffers of the commands of one connection: four commands of MDTS_BYTES.
 * Other commands wait, with 64 bytes each, until one of these completes.
 */
#define CONNECTION_BYTES (4u << 20)

/* Keep Alive granularity (KAS), in units of 100 ms. */
#define KAS_UNITS 1u
#define KAS_MS (100u * KAS_UNITS)

#endif /* VCACHE_NVMETCP_LIMITS_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* How much of everything: what a host may ask for, and what it can cost us. */
#ifndef VCACHE_NVMETCP_LIMITS_H
#define VCACHE_NVMETCP_LIMITS_H

/*
 * In-capsule data of any queue. The admin queue's is not negotiable: Linux
 * sends up to 8 KiB there (nvme_tcp_inline_data_size()).
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
/* The smallest admin queue size that every controller has to take. */
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
 * Data that commands of one connection hold at a time; at MDTS_BYTES each it
 * is four commands. Others wait, as 64 bytes, until one of these is answered.
 */
#define CONNECTION_BYTES (4u << 20)

/* Keep Alive granularity (KAS), in units of 100 ms. */
#define KAS_UNITS 1u
#define KAS_MS (100u * KAS_UNITS)

#endif /* VCACHE_NVMETCP_LIMITS_H */

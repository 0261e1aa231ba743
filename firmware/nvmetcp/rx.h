/* SPDX-License-Identifier: Apache-2.0 */
/* The receive state of a connection. */
#ifndef VCACHE_NVMETCP_RX_H
#define VCACHE_NVMETCP_RX_H

#include <stddef.h>
#include <stdint.h>

#include "pdu.h"

struct conn;
struct request;

enum rx_state {
	RX_CH,		/* common header */
	RX_HEADER,	/* the rest of the header, and its digest */
	RX_PAD,
	RX_DATA,
	RX_DDGST,
};

/**
 * struct rx - the PDU that is being received
 * @state: its current part
 * @have: received bytes of that part
 * @header: header and header digest
 * @layout: lengths of the parts
 * @request: command to which the PDU belongs, or NULL
 * @data: buffer for the data
 * @crc: CRC of the received data
 * @ddgst: received data digest
 */
struct rx {
	enum rx_state state;
	uint32_t have;
	uint8_t header[PDU_HEADER_MAX + PDU_DIGEST];
	struct pdu_layout layout;
	struct request *request;
	uint8_t *data;
	uint32_t crc;
	uint8_t ddgst[PDU_DIGEST];
};

size_t rx_bytes(struct conn *c, const uint8_t *bytes, size_t n);

#endif /* VCACHE_NVMETCP_RX_H */

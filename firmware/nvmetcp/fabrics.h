/* SPDX-License-Identifier: Apache-2.0 */
/* NVMe over Fabrics 1.1: commands and the discovery log page. */
#ifndef VCACHE_NVMETCP_FABRICS_H
#define VCACHE_NVMETCP_FABRICS_H

#include "bytes.h"
#include "nvme.h"

#define DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
/* An NQN has at most 223 bytes (Base §7.9), plus a NUL. */
#define NQN_SIZE 224
#define CNTLID_DYNAMIC 0xffffu
#define SQHD_DISABLED 0xffffu

enum fctype {
	FCTYPE_PROPERTY_SET = 0x00,
	FCTYPE_CONNECT = 0x01,
	FCTYPE_PROPERTY_GET = 0x04,
};

/* CATTR of Connect: disable SQ flow control. */
#define CATTR_NO_SQ_FLOW 0x04

struct connect_sqe {
	uint8_t opcode;
	uint8_t flags;
	struct le16 cid;
	uint8_t fctype;
	uint8_t reserved1[19];
	struct sgl sgl;
	struct le16 recfmt;
	struct le16 qid;
	struct le16 sqsize;
	uint8_t cattr;
	uint8_t reserved2;
	struct le32 kato;
	uint8_t reserved3[12];
};

struct connect_data {
	uint8_t hostid[16];
	struct le16 cntlid;
	uint8_t reserved1[238];
	char subnqn[256];
	char hostnqn[256];
	uint8_t reserved2[256];
};

struct property_sqe {
	uint8_t opcode;
	uint8_t flags;
	struct le16 cid;
	uint8_t fctype;
	uint8_t reserved1[35];
	uint8_t attrib;
	uint8_t reserved2[3];
	struct le32 ofst;
	struct le64 value;
	uint8_t reserved3[8];
};

/* ATTRIB: size of the property */
#define ATTRIB_SIZE 0x07
#define ATTRIB_4_BYTES 0x00
#define ATTRIB_8_BYTES 0x01

_Static_assert(sizeof(struct connect_sqe) == 64, "Connect");
_Static_assert(sizeof(struct connect_data) == 1024, "data of Connect");
_Static_assert(sizeof(struct property_sqe) == 64, "Property Get and Set");

#define TRTYPE_TCP 3
#define ADRFAM_IPV4 1
#define ADRFAM_IPV6 2
#define SUBTYPE_NVM 2
/* TREQ: "SQ flow control can be disabled". */
#define TREQ_NO_SQ_FLOW 0x04

struct discovery_header {
	struct le64 genctr;
	struct le64 numrec;
	struct le16 recfmt;
	uint8_t reserved[1006];
};

struct discovery_entry {
	uint8_t trtype;
	uint8_t adrfam;
	uint8_t subtype;
	uint8_t treq;
	struct le16 portid;
	struct le16 cntlid;
	struct le16 asqsz;
	uint8_t reserved1[22];
	char trsvcid[32];
	uint8_t reserved2[192];
	char subnqn[256];
	char traddr[256];
	uint8_t tsas[256];
};

_Static_assert(sizeof(struct discovery_header) == 1024, "discovery log");
_Static_assert(sizeof(struct discovery_entry) == 1024, "discovery log entry");

#endif /* VCACHE_NVMETCP_FABRICS_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands, completions and status codes of the NVMe Base Specification 1.4.
 * "Figure" in comments refers to that document.
 */
#ifndef VCACHE_NVMETCP_NVME_H
#define VCACHE_NVMETCP_NVME_H

#include "bytes.h"

#define NVME_VS 0x00010400u	/* 1.4.0 */
#define NSID_ALL 0xffffffffu

/* SGL Descriptor Identifier: type in bits 7:4, sub type in bits 3:0 */
#define SGL_DATA_BLOCK_OFFSET 0x01	/* data is in the capsule */
#define SGL_TRANSPORT 0x5a		/* data is in data PDUs */

struct sgl {
	struct le64 address;
	struct le32 length;
	uint8_t reserved[3];
	uint8_t identifier;
};

/* FUSE is in bits 1:0, PSDT in bits 7:6. Only SGLs (01b) are supported. */
#define SQE_FLAGS_CHECKED 0xc3
#define SQE_FLAGS_SGL 0x40

struct sqe {
	uint8_t opcode;
	uint8_t flags;
	struct le16 cid;
	struct le32 nsid;
	struct le32 cdw2;
	struct le32 cdw3;
	struct le64 mptr;
	struct sgl sgl;
	struct le32 cdw10;
	struct le32 cdw11;
	struct le32 cdw12;
	struct le32 cdw13;
	struct le32 cdw14;
	struct le32 cdw15;
};

struct cqe {
	struct le32 dw0;
	struct le32 dw1;
	struct le16 sqhd;
	struct le16 sqid;
	struct le16 cid;
	struct le16 status;
};

_Static_assert(sizeof(struct sqe) == 64, "submission queue entry");
_Static_assert(sizeof(struct cqe) == 16, "completion queue entry");

enum admin_opcode {
	ADMIN_GET_LOG_PAGE = 0x02,
	ADMIN_IDENTIFY = 0x06,
	ADMIN_ABORT = 0x08,
	ADMIN_SET_FEATURES = 0x09,
	ADMIN_GET_FEATURES = 0x0a,
	ADMIN_ASYNC_EVENT_REQUEST = 0x0c,
	ADMIN_KEEP_ALIVE = 0x18,
	OPCODE_FABRICS = 0x7f,
};

enum io_opcode {
	IO_FLUSH = 0x00,
	IO_WRITE = 0x01,
	IO_READ = 0x02,
	IO_COMPARE = 0x05,
	IO_WRITE_ZEROES = 0x08,
	IO_DATASET_MANAGEMENT = 0x09,
	IO_MANAGEMENT_RECEIVE = 0x12,
	IO_MANAGEMENT_SEND = 0x1d,
	/* Bits 1:0 are the direction of the data (figure 105). */
	IO_TAGGED_FLUSH = 0xc0,
	IO_TAGGED_WRITE = 0xc1,
	IO_TAGGED_READ = 0xc2,
	IO_TAGGED_DEALLOCATE = 0xc5,
};

/* Bits 1:0 of an opcode or of a FCTYPE */
#define TRANSFER_MASK 0x03
#define TRANSFER_NONE 0x00
#define TRANSFER_TO_CONTROLLER 0x01
#define TRANSFER_TO_HOST 0x02

/* CDW12 of reads, writes and Write Zeroes */
#define CDW12_NLB 0xffffu
#define CDW12_DEAC (1u << 25)
#define CDW12_FUA (1u << 30)
/* Directive of writes: its type in CDW12, its value in CDW13 */
#define CDW12_DTYPE_SHIFT 20
#define CDW12_DTYPE 0xfu
#define CDW13_DSPEC_SHIFT 16
/* CDW11 of Dataset Management */
#define DSM_AD (1u << 2)

struct dsm_range {
	struct le32 attributes;
	struct le32 length;
	struct le64 slba;
};

/* Status: SC in bits 7:0, SCT in bits 10:8, then CRD, M and DNR */
enum status {
	SC_SUCCESS = 0x000,
	SC_INVALID_OPCODE = 0x001,
	SC_INVALID_FIELD = 0x002,
	SC_INTERNAL_ERROR = 0x006,
	SC_COMMAND_ABORT_REQUESTED = 0x007,
	SC_INVALID_NAMESPACE = 0x00b,
	SC_COMMAND_SEQUENCE_ERROR = 0x00c,
	SC_DATA_SGL_LENGTH_INVALID = 0x00f,
	SC_SGL_DESCRIPTOR_TYPE_INVALID = 0x011,
	SC_SGL_OFFSET_INVALID = 0x016,
	SC_NAMESPACE_WRITE_PROTECTED = 0x020,
	SC_TRANSIENT_TRANSPORT_ERROR = 0x022,
	SC_LBA_OUT_OF_RANGE = 0x080,
	SC_ASYNC_EVENT_LIMIT_EXCEEDED = 0x105,
	SC_INVALID_LOG_PAGE = 0x109,
	SC_FEATURE_NOT_SAVEABLE = 0x10d,
	SC_FEATURE_NOT_CHANGEABLE = 0x10e,
	SC_CONNECT_INCOMPATIBLE_FORMAT = 0x180,
	SC_CONNECT_CONTROLLER_BUSY = 0x181,
	SC_CONNECT_INVALID_PARAMETERS = 0x182,
	SC_CONNECT_INVALID_HOST = 0x184,
	SC_UNRECOVERED_READ_ERROR = 0x281,
	SC_COMPARE_FAILURE = 0x285,
	SC_INSTANCE_MISMATCH = 0x7c0, /* vendor specific */
	SC_MORE = 0x2000,
	SC_DNR = 0x4000,
};

/* Figure 278; the other features are optional or for PCIe. */
enum feature {
	FEATURE_ARBITRATION = 0x01,
	FEATURE_POWER_MANAGEMENT = 0x02,
	FEATURE_TEMPERATURE_THRESHOLD = 0x04,
	FEATURE_ERROR_RECOVERY = 0x05,
	FEATURE_VOLATILE_WRITE_CACHE = 0x06,
	FEATURE_NUMBER_OF_QUEUES = 0x07,
	FEATURE_WRITE_ATOMICITY = 0x0a,
	FEATURE_ASYNC_EVENT_CONFIG = 0x0b,
	FEATURE_KEEP_ALIVE_TIMER = 0x0f,
	FEATURE_FDP_MODE = 0x1d,
	FEATURE_FDP_EVENTS = 0x1e,
	FEATURE_HOST_IDENTIFIER = 0x81,
	FEATURE_TAG_WEIGHT = 0xc0,	/* vendor specific */
};

/* Asynchronous Event Configuration */
#define AEC_SMART 0xffu
#define AEC_NAMESPACE_ATTRIBUTE (1u << 8)

/* Properties (§3.1) */
enum property {
	PROPERTY_CAP = 0x00,
	PROPERTY_VS = 0x08,
	PROPERTY_CC = 0x14,
	PROPERTY_CSTS = 0x1c,
};

#define CAP_CQR (1ull << 16)
#define CAP_TO_SHIFT 24
#define CAP_CSS_NVM (1ull << 37)

#define CC_EN (1u << 0)
#define CC_CSS (7u << 4)
#define CC_MPS (15u << 7)
#define CC_AMS (7u << 11)
#define CC_SHN (3u << 14)
#define CC_IOSQES (15u << 16)
#define CC_IOCQES (15u << 20)
/* Entries of 64 and 16 bytes, as powers of two. */
#define CC_ENTRY_SIZES (6u << 16 | 4u << 20)

#define CSTS_RDY (1u << 0)
#define CSTS_CFS (1u << 1)
#define CSTS_SHST_OCCURRING (1u << 2)
#define CSTS_SHST_COMPLETE (2u << 2)

#endif /* VCACHE_NVMETCP_NVME_H */
